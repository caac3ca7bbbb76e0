package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tool is the path of a program that scripts/tool builds, once.
func tool(t *testing.T, name string) string {
	t.Helper()
	build := exec.CommandContext(t.Context(), "scripts/tool", "--path", name)
	build.Dir = root
	var log strings.Builder
	build.Stderr = &log
	path, err := build.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, log.String())
	}
	return strings.TrimSpace(string(path))
}

// watcher is a running Prometheus.
type watcher struct{ url string }

// startPrometheus runs the real server with a configuration, and waits until it
// is ready.
func startPrometheus(t *testing.T, config string) watcher {
	t.Helper()
	program := tool(t, "prometheus")
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yaml")
	must(t, os.WriteFile(file, []byte(config), 0o600))
	address := "127.0.0.1:" + freePort(t)
	var log strings.Builder
	run := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--enable-feature=exemplar-storage", "--log.level=warn")
	run.Stdout, run.Stderr = &log, &log
	must(t, run.Start())
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	t.Cleanup(func() {
		_ = run.Process.Signal(os.Interrupt)
		if err := <-ended; err != nil || t.Failed() {
			t.Logf("Prometheus ended with %v\n%s", err, log.String())
		}
	})
	w := watcher{"http://" + address}
	for {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("Prometheus ended: %v\n%s", err, log.String())
		case <-time.After(50 * time.Millisecond):
		}
		if _, err := get(t.Context(), w.url+"/-/ready"); err == nil {
			return w
		}
	}
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d: %s", response.StatusCode, text)
	}
	return text, err
}

// ask calls Prometheus' API and decodes the data of its answer. Whatever it
// warns of, such as a rate of something that is no counter, is an error.
func (w watcher) ask(t *testing.T, path string, query url.Values, to any) {
	t.Helper()
	text, err := get(t.Context(), w.url+"/api/v1/"+path+"?"+query.Encode())
	if err != nil {
		t.Fatalf("%s %v: %v", path, query, err)
	}
	var answer struct {
		Status          string
		Data            json.RawMessage
		Warnings, Infos []string
	}
	must(t, json.Unmarshal(text, &answer))
	if answer.Status != "success" || len(answer.Warnings)+len(answer.Infos) > 0 {
		t.Errorf("%s %v: %s %q %q", path, query, answer.Status, answer.Warnings, answer.Infos)
	}
	must(t, json.Unmarshal(answer.Data, to))
}

// sample is one series' value now.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (s sample) value(t *testing.T) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s.Value[1].(string), 64)
	must(t, err)
	return v
}

// query is the values of an expression now, those left out that are no number:
// a quantile of nothing.
func (w watcher) query(t *testing.T, expr string) (samples []sample) {
	t.Helper()
	var data struct {
		ResultType string
		Result     []sample
	}
	w.ask(t, "query", url.Values{"query": {expr}}, &data)
	if data.ResultType != "vector" {
		t.Fatalf("%s is a %s", expr, data.ResultType)
	}
	for _, s := range data.Result {
		if !math.IsNaN(s.value(t)) {
			samples = append(samples, s)
		}
	}
	return samples
}

// alert is one that is pending or firing.
type alert struct {
	Labels      map[string]string
	Annotations map[string]string
	State       string
}

func (w watcher) alerts(t *testing.T) []alert {
	t.Helper()
	var data struct{ Alerts []alert }
	w.ask(t, "alerts", nil, &data)
	return data.Alerts
}

// traces are the traces that exemplars of an expression name.
func (w watcher) traces(t *testing.T, expr string) (found []string) {
	t.Helper()
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	now := time.Now()
	w.ask(t, "query_exemplars", url.Values{"query": {expr}, "start": {stamp(now.Add(-time.Hour))}, "end": {stamp(now)}}, &data)
	for _, series := range data {
		for _, e := range series.Exemplars {
			found = append(found, e.Labels["trace_id"])
		}
	}
	return found
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
