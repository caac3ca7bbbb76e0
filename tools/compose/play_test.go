package compose

import (
	"bufio"
	stdcontext "context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// Compose's command lines, as the programs that the Dockerfile builds run them
// on this machine. Other than there is what a machine without containers has not:
// the addresses, the collector, the volume's place, and the share of a processor,
// of which a program is told as Go's runtime would read it there.

// player runs services of a project.
type player struct {
	*testing.T
	project *types.Project
	out     string // the programs
	folder  string // the volumes' place
}

func newPlayer(t *testing.T) *player {
	t.Helper()
	return &player{T: t, project: mustLoad(t, composeFile), out: build(t), folder: t.TempDir()}
}

// command is a service's command with more flags, of which the last one counts.
func (p *player) command(ctx stdcontext.Context, name string, more ...string) *exec.Cmd {
	p.Helper()
	s := p.project.Services[name]
	words := append(slices.Clone(s.Entrypoint), s.Command...)
	if len(s.Entrypoint) == 0 {
		words = append([]string{"/usr/local/bin/service"}, words...) // the image's own
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.out, filepath.Base(words[0])), append(words[1:], more...)...)
	cmd.Env = []string{"OTEL_TRACES_EXPORTER=none"}
	if s.CPUS > 0 {
		cmd.Env = append(cmd.Env, "GOMAXPROCS="+strconv.Itoa(max(1, int(s.CPUS))))
	}
	for variable, value := range s.Environment {
		text := *value
		for _, v := range s.Volumes {
			text = strings.ReplaceAll(text, v.Target, filepath.Join(p.folder, filepath.Base(v.Target)))
		}
		cmd.Env = append(cmd.Env, variable+"="+text)
	}
	return cmd
}

// served is a service that runs.
type served struct {
	*player
	url string

	mu  sync.Mutex
	log strings.Builder
}

var listening = regexp.MustCompile(`url=(http://127\.0\.0\.1:[0-9]+)`)

// serve starts a service, which ends with the test: as it should, and with
// nothing leaked.
func (p *player) serve(name string) *served {
	p.Helper()
	cmd := p.command(stdcontext.Background(), name, "-listen=127.0.0.1:0", "-drain=0s")
	stderr, err := cmd.StderrPipe()
	must(p.T, err)
	must(p.T, cmd.Start())
	s, url, ended := &served{player: p}, make(chan string, 1), make(chan struct{})
	go func() { defer close(ended); s.read(stderr, url) }()
	p.Cleanup(func() {
		must(p.T, cmd.Process.Signal(syscall.SIGTERM))
		<-ended
		if err := cmd.Wait(); err != nil || !strings.Contains(s.logged(), "nothing was leaked") {
			p.Errorf("%s ended with %v:\n%s", name, err, tail(s.logged()))
		}
	})
	select {
	case s.url = <-url:
	case <-ended:
		p.Fatalf("%s does not serve:\n%s", name, s.logged())
	}
	return s
}

// read keeps the log, and finds the address in it.
func (s *served) read(from io.Reader, url chan<- string) {
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadString('\n')
		s.mu.Lock()
		s.log.WriteString(line)
		s.mu.Unlock()
		if m := listening.FindStringSubmatch(line); m != nil && len(url) == 0 {
			url <- m[1]
		}
		if err != nil {
			return
		}
	}
}

func (s *served) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

// get is what the service answers, whatever its status.
func (s *served) get(path string) string {
	s.Helper()
	response, err := http.Get(s.url + path)
	must(s.T, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(s.T, err)
	return string(body)
}

// report is what the load generator says at its end.
type report struct {
	OK, Wrong, Failed, Skipped uint64
	Refused                    map[string]uint64
	FirstFailure               string `json:"first_failure"`
}

// load runs a service's load for some seconds. On a machine that is busy
// requests take long, and that is nobody's fault.
func (s *served) load(name string) (r report) {
	s.Helper()
	cmd := s.command(s.Context(), name, "-url="+s.url, "-for=5s", "-timeout=5m", "-json")
	text, err := cmd.Output() // its exit code says what the report does
	if json.Unmarshal(text, &r) != nil {
		s.Fatalf("%s: %v: %s", name, err, text)
	}
	s.Logf("%s: %+v", name, r)
	return r
}

// sum adds up the samples of a metric whose labels have all these texts.
func (s *served) sum(metric string, labels ...string) float64 {
	s.Helper()
	sum, _ := s.samples(metric, labels...)
	return sum
}

func (s *served) samples(metric string, labels ...string) (sum float64, n int) {
	s.Helper()
	for line := range strings.Lines(s.get("/metrics")) {
		name, rest, _ := strings.Cut(line, "{")
		set, value, ok := strings.Cut(rest, "} ")
		if name != metric || !ok || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(set, l) }) {
			continue
		}
		v, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
		must(s.T, err)
		sum, n = sum+v, n+1
	}
	return sum, n
}

// What a newcomer sees first is green: the shipped load is served, nothing is
// wrong, and nothing has happened that an alert goes by.
func TestTheShippedServiceIsHealthyUnderTheShippedLoad(t *testing.T) {
	s := newPlayer(t).serve("service")
	r := s.load("load")
	delete(r.Refused, "504 deadline_exceeded") // the machine is slow
	if r.OK == 0 || r.Wrong > 0 || r.Failed > 0 || len(r.Refused) > 0 {
		t.Errorf("the load: %+v", r)
	}
	if health := s.get("/healthz"); !strings.HasPrefix(health, `{"state":"ok"`) {
		t.Error(health)
	}
	for _, never := range []struct{ metric, label string }{
		{"gpumem_health_reasons", ""}, {"gpumem_sticky_errors_total", ""},
		{"gpumem_guard_events_total", `event="relieved"`}, {"gpumem_guard_events_total", `event="given_up"`},
		{"gpumem_guard_events_total", `event="unguarded"`}, {"gpumem_guard_events_total", `event="unchecked"`},
	} {
		if sum, n := s.samples(never.metric, never.label); sum != 0 || n == 0 {
			t.Errorf("%s{%s}: %v in %d series", never.metric, never.label, sum, n)
		}
	}
	// These have a series once there is something; the other test sees them.
	if refused, found := s.sum("gpumem_refusals_total"), s.sum("gpumem_findings_total"); refused+found > 0 {
		t.Errorf("%v refusals, %v findings", refused, found)
	}
	if s.sum("gpumem_allocations_total") == 0 || s.sum("gpumem_health", `state="ok"`) != 1 {
		t.Error("the metrics tell nothing: this test sees nothing")
	}
}

// In the profile for practice there is a bug to be found and a load to be
// explained, and the tools of the image show both.
func TestTheIncidentsProfileHasABugAndAnOverload(t *testing.T) {
	s := newPlayer(t).serve("incident")
	deadline := time.Now().Add(5 * time.Minute)
	for s.sum("gpumem_findings_total", `kind="oob-write"`, `tag="service.sort"`) == 0 || s.sum("gpumem_refusals_total", `reason="out_of_budget"`) == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("no finding, or nobody refused:\n%s", tail(s.logged()))
		}
		if r := s.load("incident-load"); r.Wrong > 0 {
			t.Errorf("the bug changes results: %+v", r)
		}
	}
	// The rest is told behind the counters' backs.
	until := func(what string, so func() bool) {
		t.Helper()
		for ; !so(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not %s: %s\n%s", what, s.get("/healthz"), tail(s.logged()))
			}
		}
	}
	until("degraded", func() bool {
		health := s.get("/healthz")
		return strings.HasPrefix(health, `{"state":"degraded"`) && strings.Contains(health, `"findings":{"oob-write":`)
	})
	for _, want := range []string{"a bug is planted", "kind=oob-write", "code=out_of_budget", "largest holders: service."} {
		until(fmt.Sprintf("%q in the log", want), func() bool { return strings.Contains(s.logged(), want) })
	}
	var files []string
	until("an incident file", func() (there bool) {
		var err error
		files, err = filepath.Glob(filepath.Join(s.folder, "incidents", "*-oob-write.json"))
		must(t, err)
		return len(files) > 0
	})
	// The device's oracle names the one launch. If the guard comes first, its file has the
	// launches that may have done it.
	launch := regexp.MustCompile(`(?m)^(culprit|\d+ suspects.*):\n(  .*\n)*  .*"fencepost_join_clear"`)
	if text := s.tool("incident", files[0]); !launch.MatchString(text) || !strings.Contains(text, `tag "service.sort"`) {
		t.Error(text)
	}
	s.tool("guard", "--at="+s.url, "--hunt-tag=service.sort")
	if text := s.tool("guard", "--at="+s.url, "status"); !strings.Contains(text, "service.sort") {
		t.Errorf("the guard was not switched: %s", text)
	}
}

// tool runs the command that the image has beside the service.
func (p *player) tool(words ...string) string {
	p.Helper()
	text, err := exec.CommandContext(p.Context(), filepath.Join(p.out, "fencepost"), words...).CombinedOutput()
	if err != nil {
		p.Fatalf("fencepost %q: %v\n%s", words, err, text)
	}
	return string(text)
}
