package kubernetes

import (
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

func deployment(t *testing.T) *apps.Deployment {
	t.Helper()
	return only[*apps.Deployment](t, build(t, filepath.Join(root, service)))
}

func container(t *testing.T) core.Container {
	t.Helper()
	all := deployment(t).Spec.Template.Spec.Containers
	if len(all) != 1 {
		t.Fatalf("%d containers", len(all))
	}
	return all[0]
}

// Without this the tests below could pass because nothing is looked at.
func TestAMistakeInAManifestIsSeen(t *testing.T) {
	decode := decoder(t)
	for name, text := range map[string]string{
		"an unknown field":     "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {port: 1}}",
		"a field given twice":  "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: ClusterIP, type: NodePort}",
		"a bad quantity":       "{apiVersion: v1, kind: Pod, spec: {containers: [{name: a, resources: {limits: {memory: much}}}]}}",
		"a wrong type":         "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: one}}",
		"a kind of nobody's":   "{apiVersion: v1, kind: Servise}",
		"an unknown label set": "{apiVersion: monitoring.coreos.com/v1, kind: PodMonitor, spec: {podMetricsEndpoints: [], selector: {match: {a: b}}}}",
	} {
		if object, _, err := decode.Decode([]byte(text), nil, nil); err == nil {
			t.Errorf("%s was taken: %+v", name, object)
		}
	}
}

func TestTheSelectorsFindThePods(t *testing.T) {
	objects := build(t, filepath.Join(root, service))
	d := only[*apps.Deployment](t, objects)
	pod := labels.Set(d.Spec.Template.Labels)
	for name, selector := range map[string]*meta.LabelSelector{
		"Deployment": d.Spec.Selector,
		"Service":    {MatchLabels: only[*core.Service](t, objects).Spec.Selector},
		"PodMonitor": &only[*monitoring.PodMonitor](t, objects).Spec.Selector,
	} {
		s, err := meta.LabelSelectorAsSelector(selector)
		must(t, err)
		if s.Empty() || !s.Matches(pod) || s.Matches(labels.Set{}) {
			t.Errorf("the selector %q of the %s, and the pod's labels %v", s, name, pod)
		}
	}
}

// listens says where the service listens, by its arguments.
var listens = regexp.MustCompile(`^-listen=0\.0\.0\.0:([0-9]+)$`)

func TestEverybodyAsksWhereTheServiceListens(t *testing.T) {
	objects, c := build(t, filepath.Join(root, service)), container(t)
	if len(c.Ports) != 1 || c.Ports[0].Name != "http" || !slices.Contains(c.Args, "-listen=0.0.0.0:8080") || c.Ports[0].ContainerPort != 8080 {
		t.Errorf("ports %+v, arguments %q", c.Ports, c.Args)
	}
	if i := slices.IndexFunc(c.Args, listens.MatchString); i < 0 {
		t.Errorf("nobody outside the pod reaches %q", c.Args)
	}
	routes := read(t, "examples/service/internal/api/api.go")
	asked := map[string]string{}
	for what, p := range map[string]*core.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Port.StrVal != "http" {
			t.Fatalf("the %s probe: %+v", what, p)
		}
		asked[what] = p.HTTPGet.Path
	}
	end := only[*monitoring.PodMonitor](t, objects).Spec.PodMetricsEndpoints
	if len(end) != 1 || end[0].Port == nil || *end[0].Port != "http" {
		t.Fatalf("the PodMonitor's endpoints: %+v", end)
	}
	asked["metrics"] = end[0].Path
	for what, constant := range map[string]string{"startup": "RouteHealth", "liveness": "RouteHealth", "readiness": "RouteReady", "metrics": "RouteMetrics"} {
		if !regexp.MustCompile(constant + `\s*= "` + regexp.QuoteMeta(asked[what]) + `"`).MatchString(routes) {
			t.Errorf("%s is asked of %q, which is not the service's %s", what, asked[what], constant)
		}
	}
	ports := only[*core.Service](t, objects).Spec.Ports
	if len(ports) != 1 || ports[0].TargetPort.StrVal != "http" {
		t.Errorf("the Service's ports: %+v", ports)
	}
}

func TestTheImageIsTheOneThatComposeBuilds(t *testing.T) {
	var compose struct {
		Services map[string]struct{ Image string }
	}
	must(t, yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &compose))
	if want := compose.Services["service"].Image; container(t).Image != want || want == "" {
		t.Errorf("image %s, want %s", container(t).Image, want)
	}
	pod := deployment(t).Spec.Template.Spec.SecurityContext
	if user := regexp.MustCompile(`(?m)^USER ([0-9]+):([0-9]+)$`).FindStringSubmatch(read(t, "examples/service/Dockerfile")); user == nil ||
		user[1] != "65532" || user[2] != "65532" || *pod.RunAsUser != 65532 || *pod.RunAsGroup != 65532 || *pod.FSGroup != 65532 {
		t.Errorf("the image's user is %q, the pod's %+v", user, pod)
	}
}

// What Kubernetes calls its restricted profile, and a file system that cannot be
// written but where the service writes.
func TestThePodHasNoRightsThatItDoesNotNeed(t *testing.T) {
	pod, c := deployment(t).Spec.Template.Spec, container(t)
	s := c.SecurityContext
	if !*pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *pod.AutomountServiceAccountToken {
		t.Errorf("the pod: %+v", pod.SecurityContext)
	}
	if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Privileged != nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
		t.Errorf("the container: %+v", s)
	}
	written := 0
	for _, v := range c.Env {
		if !strings.HasPrefix(v.Value, "/") {
			continue
		}
		written++
		if !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool {
			return !m.ReadOnly && strings.HasPrefix(v.Value, m.MountPath+"/") && slices.ContainsFunc(pod.Volumes, func(o core.Volume) bool { return o.Name == m.Name && o.EmptyDir != nil })
		}) {
			t.Errorf("%s=%s lies on a file system that cannot be written", v.Name, path.Clean(v.Value))
		}
	}
	if written != 2 {
		t.Errorf("%d folders are written", written)
	}
}

func TestThePodHasOneGPUAndNoSimulatedOne(t *testing.T) {
	c := container(t)
	gpus := c.Resources.Limits["nvidia.com/gpu"]
	if gpus.Value() != 1 || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("resources: %+v", c.Resources)
	}
	known := read(t, "internal/environ/environ.go")
	for _, v := range c.Env {
		if strings.HasPrefix(v.Name, "FENCEPOST_") && !strings.Contains(known, `"`+v.Name+`"`) {
			t.Errorf("nobody reads %s", v.Name)
		}
		if v.Name == "FENCEPOST_DEVICE" && v.Value != "cuda" {
			t.Errorf("the device is %s", v.Value)
		}
	}
	if s := deployment(t).Spec.Strategy.RollingUpdate; s.MaxSurge.IntVal != 0 || s.MaxUnavailable.IntVal != 1 {
		t.Errorf("an update waits for a GPU that the old pod has: %+v", s)
	}
}

// help is what the service says of its flags; it refuses those that it does not
// know.
func help(t *testing.T, args ...string) (string, error) {
	t.Helper()
	run := exec.CommandContext(t.Context(), "go", append(append([]string{"run", "./examples/service"}, args...), "-h")...)
	run.Dir = root
	text, err := run.CombinedOutput()
	return string(text), err
}

func TestTheArgumentsAreTheServicesAndTheEndHasTime(t *testing.T) {
	if _, err := help(t, "-no-such-flag=1"); err == nil {
		t.Fatal("a flag that nobody has is taken")
	}
	args := container(t).Args
	text, err := help(t, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	duration := func(pattern, in string) time.Duration {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(in)
		if found == nil {
			t.Fatalf("%q is not found", pattern)
		}
		d, err := time.ParseDuration(strings.ReplaceAll(found[1], " * time.Second", "s"))
		must(t, err)
		return d
	}
	drain := duration(`-drain=(\S+)`, strings.Join(args, " "))
	stop := duration(`(?s)-stop-timeout.*?\(default (\S+)\)`, text)
	step := duration(`stepTimeout = (.*)`, read(t, "examples/service/serve.go"))
	const steps = 5 // requests that give up, the engine, the runtime, spans, metrics
	grace := time.Duration(*deployment(t).Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if need := drain + stop + steps*step; grace <= need || drain < 5*time.Second {
		t.Errorf("the end may take %v (%v of it drain) and has %v", need, drain, grace)
	}
}

// The overlay in docs/kubernetes.md is one that works.
func TestTheOverlayOfTheDocumentBuilds(t *testing.T) {
	text := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, "docs/kubernetes.md"))
	if text == nil {
		t.Fatal("docs/kubernetes.md has no overlay")
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "overlay", "here", "kustomization.yaml"), text[1])
	for _, file := range []string{"kustomization.yaml", "deployment.yaml", "service.yaml", "podmonitor.yaml"} {
		put(t, filepath.Join(dir, service, file), read(t, service+"/"+file))
	}
	objects := build(t, filepath.Join(dir, "overlay", "here"))
	c := only[*apps.Deployment](t, objects).Spec.Template.Spec.Containers[0]
	endpoint := slices.ContainsFunc(c.Env, func(v core.EnvVar) bool {
		return v.Name == "OTEL_EXPORTER_OTLP_ENDPOINT" && strings.HasPrefix(v.Value, "http://")
	})
	if c.Image != "registry.example/fencepost-service:1" || !endpoint || only[*monitoring.PodMonitor](t, objects).Labels["release"] != "monitoring" {
		t.Errorf("image %s, environment %+v", c.Image, c.Env)
	}
}
