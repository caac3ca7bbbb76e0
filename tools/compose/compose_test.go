package compose

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

const (
	composeFile = "docker-compose.yml"
	gpuFile     = "docker-compose.gpu.yml"
)

func TestTheComposeFilesAreValid(t *testing.T) {
	always := []string{"collector", "grafana", "load", "prometheus", "service", "tempo"}
	for profile, want := range map[string][]string{
		"":         always,
		"incident": slices.Sorted(slices.Values(append([]string{"incident", "incident-load"}, always...))),
	} {
		project, err := loadProfiles(t, []string{profile}, filepath.Join(root, composeFile))
		must(t, err)
		if got := slices.Sorted(maps.Keys(project.Services)); !slices.Equal(got, want) {
			t.Errorf("profile %q: services %q, want %q", profile, got, want)
		}
	}
}

// The bug and the load beyond the budget are nobody's who did not ask for them.
func TestOnlyTheProfileForPracticeHasABug(t *testing.T) {
	for name, s := range mustLoad(t, composeFile).Services {
		planted := slices.ContainsFunc(s.Command, func(word string) bool { return strings.HasPrefix(word, "-plant-") })
		if practice := slices.Equal(s.Profiles, []string{"incident"}); planted && !practice || name == "incident" && !planted {
			t.Errorf("%s of the profiles %q: %q", name, s.Profiles, s.Command)
		}
	}
}

// Without this the test above could pass because nothing is looked at.
func TestABrokenComposeFileIsSeen(t *testing.T) {
	for name, text := range map[string]string{
		"an unknown key":     "services: {a: {image: a, imagine: b}}",
		"a missing service":  "services: {a: {image: a, depends_on: [b]}}",
		"a bad port":         "services: {a: {image: a, ports: [here]}}",
		"a bad health check": "services: {a: {image: a, healthcheck: {test: [CMD, a], interval: soon}}}",
	} {
		file := filepath.Join(t.TempDir(), "docker-compose.yml")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		if project, err := load(t, file); err == nil {
			t.Errorf("%s was taken: %+v", name, project.Services)
		}
	}
}

func TestTheGPUFileAddsAGPUAndAsksForIt(t *testing.T) {
	without, with := mustLoad(t, composeFile).Services["service"], mustLoad(t, composeFile, gpuFile).Services["service"]
	if without.Deploy != nil || *without.Environment["FENCEPOST_DEVICE"] != "sim" {
		t.Errorf("without: %+v, %q", without.Deploy, *without.Environment["FENCEPOST_DEVICE"])
	}
	devices := with.Deploy.Resources.Reservations.Devices
	if len(devices) != 1 || devices[0].Driver != "nvidia" || devices[0].Count != 1 || !slices.Equal(devices[0].Capabilities, []string{"gpu"}) {
		t.Errorf("devices: %+v", devices)
	}
	if *with.Environment["FENCEPOST_DEVICE"] != "cuda" || *with.Environment["FENCEPOST_BUDGET"] == "" || !slices.Equal(with.Command, without.Command) {
		t.Errorf("with: %v %v", with.Environment, with.Command)
	}
}

// pinned is a name with a tag of a release.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+:v?[0-9]+(\.[0-9]+)+$`)

func TestImagesArePinnedByTag(t *testing.T) {
	for name, service := range mustLoad(t, composeFile).Services {
		built := service.Image == "fencepost-service:local"
		if !built && !pinned.MatchString(service.Image) {
			t.Errorf("%s: %s", name, service.Image)
		}
		if built && service.Build == nil && service.PullPolicy != types.PullPolicyNever {
			t.Errorf("%s would pull an image that is built here", name)
		}
	}
}

func TestNothingCanBeReachedFromAnotherMachine(t *testing.T) {
	ports := 0
	for name, service := range mustLoad(t, composeFile).Services {
		for _, p := range service.Ports {
			ports++
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q", name, p.Published, p.HostIP)
			}
		}
		if service.Privileged || service.NetworkMode == "host" {
			t.Errorf("%s has the host's network or rights", name)
		}
	}
	if ports != 4 {
		t.Errorf("%d ports are published", ports)
	}
}

func TestWhatIsMountedExistsAndCannotBeWritten(t *testing.T) {
	mounts := 0
	for name, service := range mustLoad(t, composeFile).Services {
		for _, v := range service.Volumes {
			if v.Type == types.VolumeTypeVolume {
				continue // nothing of this machine; see the Dockerfile's test
			}
			mounts++
			if _, err := os.Stat(v.Source); v.Type != types.VolumeTypeBind || !v.ReadOnly || err != nil {
				t.Errorf("%s: %+v: %v", name, v, err)
			}
		}
	}
	if mounts < 5 {
		t.Errorf("only %d mounts", mounts)
	}
}

// programs are those that are sure to be in an image: what the image is for.
var programs = map[string]string{
	"prometheus": "promtool",
}

// A check that calls a shell or curl fails where the image has none, and
// whoever waits for the service waits for ever.
func TestHealthChecksCallOnlyWhatTheirImageHas(t *testing.T) {
	checked := 0
	for name, service := range mustLoad(t, composeFile).Services {
		if h := service.HealthCheck; h != nil && !h.Disable {
			checked++
			if len(h.Test) < 2 || h.Test[0] != "CMD" || h.Test[1] != programs[name] {
				t.Errorf("%s: %q", name, h.Test)
			}
		}
	}
	if checked != len(programs) {
		t.Errorf("%d health checks", checked)
	}
}

func TestServicesWaitOnlyForHealthThatIsChecked(t *testing.T) {
	project := mustLoad(t, composeFile)
	healthy := 0
	for name, service := range project.Services {
		for other, d := range service.DependsOn {
			if d.Condition != types.ServiceConditionHealthy {
				continue
			}
			healthy++
			// The service's check is in its image; see the Dockerfile's test.
			if project.Services[other].HealthCheck == nil && project.Services[other].Image != project.Services["service"].Image {
				t.Errorf("%s waits for the health of %s, which nobody checks", name, other)
			}
		}
	}
	if healthy == 0 {
		t.Error("nobody waits for anybody")
	}
}

// Spans that nobody takes are lost within seconds, and health shows it.
func TestWhoSendsSpansStartsAfterTheCollector(t *testing.T) {
	senders := 0
	for name, s := range mustLoad(t, composeFile).Services {
		if s.Environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == nil {
			continue
		}
		senders++
		if _, after := s.DependsOn["collector"]; !after {
			t.Errorf("%s does not wait for the collector", name)
		}
	}
	if senders != 2 {
		t.Errorf("%d services send spans", senders)
	}
}

// ports are where the services listen for each other.
var ports = map[string][]string{
	"service": {"8080"}, "incident": {"8080"}, "collector": {"4317", "8888"}, "tempo": {"3200", "4317"}, "prometheus": {"9090"}, "localhost": {"9090"},
}

var address = regexp.MustCompile(`\b(service|incident|collector|tempo|prometheus|grafana|loki|localhost|load):([0-9]{4})\b`)

func TestTheServicesFindEachOther(t *testing.T) {
	found := map[string]bool{}
	for _, file := range []string{composeFile, "dashboards/compose/collector.yaml", "dashboards/compose/prometheus.yaml", "dashboards/compose/tempo.yaml",
		"dashboards/provisioning/datasources/fencepost.yaml"} {
		for _, m := range address.FindAllStringSubmatch(read(t, file), -1) {
			found[m[0]] = true
			if !slices.Contains(ports[m[1]], m[2]) {
				t.Errorf("%s: nobody listens on %s", file, m[0])
			}
		}
	}
	for _, want := range []string{"service:8080", "incident:8080", "collector:4317", "collector:8888", "tempo:3200", "tempo:4317", "prometheus:9090"} {
		if !found[want] {
			t.Errorf("nobody asks %s", want)
		}
	}
	for file, listens := range map[string][]string{
		"dashboards/compose/collector.yaml": {"endpoint: 0.0.0.0:4317", "port: 8888"},
		"dashboards/compose/tempo.yaml":     {"endpoint: 0.0.0.0:4317", "http_listen_port: 3200"},
		composeFile:                         {"-listen=0.0.0.0:8080"},
	} {
		for _, text := range listens {
			if !strings.Contains(read(t, file), text) {
				t.Errorf("%s does not listen: %s", file, text)
			}
		}
	}
}
