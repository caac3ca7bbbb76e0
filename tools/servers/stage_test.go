package servers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What dev/boards/stage is asked.
type plan struct {
	Scenes  []string
	Queries []plannedQuery
	Alerts  []plannedAlert
	Records int
}

type plannedQuery struct {
	Where, Expr    string
	Unit           string
	Exemplars, Raw bool
	Fleet, Held    bool
	Proof          struct {
		Scene  string
		By, Is float64
		After  float64
		Series map[string]string
	}
}

type plannedAlert struct{ Name, Expr, For, Scene string }

// buildStage builds the program and has it say what it plays.
func buildStage(t *testing.T) (program string, p plan) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "stage")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./boards/stage")
	build.Dir = root + "/dev"
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := exec.CommandContext(t.Context(), program, "-plan").Output()
	must(t, err)
	must(t, json.Unmarshal(text, &p))
	if len(p.Scenes) == 0 || len(p.Queries) == 0 || len(p.Alerts) == 0 {
		t.Fatalf("an empty plan: %+v", p)
	}
	return program, p
}

// stage is the program that plays the scenes.
type stage struct{ address string }

func startStage(t *testing.T, program string) stage {
	t.Helper()
	run := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-folder="+t.TempDir())
	input, err := run.StdinPipe()
	must(t, err)
	output, err := run.StdoutPipe()
	must(t, err)
	var log strings.Builder
	run.Stderr = &log
	must(t, run.Start())
	t.Cleanup(func() {
		_ = input.Close()
		if err := run.Wait(); err != nil || t.Failed() {
			t.Logf("the stage ended with %v\n%s", err, log.String())
		}
	})
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the stage did not begin: %v", err)
	}
	return stage{strings.TrimSpace(address)}
}

func (s stage) act(t *testing.T) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address+"/act", nil)
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Fatalf("acting: %s", text)
	}
}

// Time is short in the test: a minute is a second, in rules and in ranges.
const (
	minute         = time.Second
	scrapeInterval = time.Second
	rateInterval   = 5 * time.Second
	timeRange      = time.Minute
)

var longTime = regexp.MustCompile(`(\[|offset |for: )([0-9]+)([smh])\b`)

// groupName is the line that begins a group of rules.
var groupName = regexp.MustCompile(`(?m)name: (fencepost\S*)$`)

// shorten writes the times of rules and queries as the test counts them.
func shorten(text string) string {
	return longTime.ReplaceAllStringFunc(text, func(m string) string {
		parts := longTime.FindStringSubmatch(m)
		n, _ := strconv.Atoi(parts[2])
		d := time.Duration(n) * map[string]time.Duration{"s": minute / 60, "m": minute, "h": 60 * minute}[parts[3]]
		return fmt.Sprintf("%s%dms", parts[1], d.Milliseconds())
	})
}

// prometheusConfig scrapes each scene as an instance of its name, with the
// repository's rules as they are and as the test's clock needs them, whose
// alerts have a label.
func prometheusConfig(t *testing.T, s stage, scenes []string) string {
	t.Helper()
	files, err := filepath.Glob(root + "/dashboards/rules/*.yaml")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("no rules")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "global: {scrape_interval: %v, scrape_timeout: %v, evaluation_interval: %v, scrape_native_histograms: true, always_scrape_classic_histograms: true}\n",
		scrapeInterval, scrapeInterval, scrapeInterval)
	b.WriteString("rule_files:\n")
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		short := filepath.Join(t.TempDir(), filepath.Base(file))
		must(t, os.WriteFile(short, []byte(groupName.ReplaceAllString(shorten(string(text)), "name: short-$1\n    labels: {clock: short}")), 0o600))
		absolute, err := filepath.Abs(file)
		must(t, err)
		fmt.Fprintf(&b, "  - %q\n  - %q\n", absolute, short)
	}
	b.WriteString("scrape_configs:\n  - job_name: stage\n    static_configs:\n")
	for _, scene := range scenes {
		fmt.Fprintf(&b, "      - {targets: [%q], labels: {__metrics_path__: /metrics/%s, instance: %s}}\n", s.address, scene, scene)
	}
	return b.String()
}

// expand puts the values of a board's variables into a query.
func (q plannedQuery) expand() string {
	expr := strings.NewReplacer("$__rate_interval", rateInterval.String(), "$__range", timeRange.String(), "$instance", q.Proof.Scene, "$job", ".+", "$device", ".+").Replace(shorten(q.Expr))
	if q.Held {
		return fmt.Sprintf("max_over_time((%s)[%v:%v])", expr, timeRange, scrapeInterval)
	}
	return expr
}

// measure sums the series that the proof picks.
func (q plannedQuery) measure(t *testing.T, w watcher) (sum float64, there bool) {
	t.Helper()
	for _, s := range w.query(t, q.expand()) {
		if matches(s.Metric, q.Proof.Series) {
			sum, there = sum+s.value(t), true
		}
	}
	return sum, there
}

func matches(labels, want map[string]string) bool {
	for name, value := range want {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// until calls done every now and then, and reports whether it was true in time.
func until(ctx context.Context, limit time.Duration, done func() bool) bool {
	for begin := time.Now(); time.Since(begin) < limit && ctx.Err() == nil; time.Sleep(scrapeInterval) {
		if done() {
			return true
		}
	}
	return false
}
