package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// runCaptured calls run with standard output and standard error in one pipe, and hands each line
// to line while the command runs.
func runCaptured(t *testing.T, line func(string), args ...string) (code int) {
	t.Helper()
	return capture(t, func() int { return run(args) }, line)
}

// capture is runCaptured of another call.
func capture(t *testing.T, call func() int, line func(string)) (code int) {
	t.Helper()
	read, write, err := os.Pipe()
	must.Do(t, err)
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = write, write
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	ended := make(chan int, 1)
	go func() {
		ended <- call()
		_ = write.Close()
	}()
	lines := bufio.NewScanner(read)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		line(lines.Text())
	}
	expect.Success(t, lines.Err())
	return <-ended
}

// demoUntil runs the demo until it has done enough, however long that takes on a
// busy machine, and returns its exit code and what it printed last. enough is
// asked again and again, with the address that the demo serves on.
func demoUntil(t *testing.T, enough func(base string) bool, args ...string) (last string, code int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	args = append([]string{"demo", "--for=10m", "--listen=127.0.0.1:0"}, args...)
	worked := counted(t, `gpumem_waits_total\{.*outcome="queued".*\}`) // the traces that are replayed beside the work need none
	var all []string
	code = capture(t, func() int { return runUntil(ctx, args) }, func(line string) {
		last, all = line, append(all, line)
		if rest, ok := strings.CutPrefix(line, "metrics on "); ok {
			defer stop()
			base, _, _ := strings.Cut(rest, "/metrics")
			waitUntil(t, "the demo to do enough", func() bool { return worked(base) && enough(base) })
		}
	})
	if code != exitClean {
		t.Log(strings.Join(all, "\n"))
	}
	return last, code
}

// counted is enough for demoUntil: a counter is no longer zero.
func counted(t *testing.T, name string) func(base string) bool {
	return func(base string) bool {
		metrics, _ := get(t, base+"/metrics")
		return regexp.MustCompile(`(?m)^` + name + `(\{.*\})? [1-9]`).MatchString(metrics)
	}
}

// waitUntil waits with patience for something to be so.
func waitUntil(t *testing.T, what string, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Errorf("waited a minute for %s", what)
			return
		}
	}
}

func get(t *testing.T, url string) (body string, code int) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	response, err := http.DefaultClient.Do(request)
	must.Do(t, err)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(t)
	return string(text), response.StatusCode
}

// A client that sends a few bytes now and then holds no connection for long.
func TestTheDemoCutsRequestsThatDoNotCome(t *testing.T) {
	rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim}))(t)
	defer func() { must.Get(rt.Close(context.Background()))(t) }()
	spans := must.Get(openSpans(t.Context(), "", 0))(t)
	server := must.Get(serve(t.Context(), "127.0.0.1:0", rt, spans))(t)
	defer server.close()
	var clients sync.WaitGroup
	for _, request := range []string{"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", "POST /debug/gpumem/guard HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nmode="} {
		clients.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(server.url, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, request)
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Errorf("%q: not cut: %v", request, err)
			}
		})
	}
	clients.Wait()
}

// The first line names an address on which metrics and health are served
// while the work goes on.
func TestTheDemoServesMetricsAndHealth(t *testing.T) {
	served := false
	_, code := demoUntil(t, func(base string) bool {
		served = true
		metrics, status := get(t, base+"/metrics")
		if status != http.StatusOK || !strings.Contains(metrics, "gpumem_memory_bytes{device=\"0\"") || !strings.Contains(metrics, "gpumem_spans_started_total") ||
			!strings.Contains(metrics, "gpumem_free_to_reusable_seconds_count{device=\"0\"}") {
			t.Errorf("metrics: %d\n%s", status, metrics)
		}
		if problems, err := promlint.New(strings.NewReader(metrics)).Lint(); err != nil || len(problems) > 0 {
			t.Errorf("the metrics do not lint: %v %v", problems, err)
		}
		var h fencepost.HealthReport
		page, status := get(t, base+"/healthz")
		if err := json.Unmarshal([]byte(page), &h); err != nil || status != http.StatusOK || h.State == "poisoned" || h.State == "closed" || !strings.Contains(h.Stack, "pool(sim:0)") {
			t.Errorf("health: %d %v\n%s", status, err, page)
		}
		if page, status := get(t, base+"/readyz"); status != http.StatusOK {
			t.Errorf("ready: %d\n%s", status, page)
		}
		waitUntil(t, "the live view to show work", func() bool { // the pages are there before the work is
			page, status := get(t, base+"/debug/gpumem/state")
			return status == http.StatusOK && strings.Contains(page, "workload.")
		})
		if page, status := get(t, base); status != http.StatusOK || !strings.Contains(page, "<title>GPU memory") {
			t.Errorf("the address alone does not lead to the live view: %d\n%s", status, page)
		}
		if _, status := get(t, base+"/nothing"); status != http.StatusNotFound {
			t.Errorf("an unknown page: %d", status)
		}
		if page, status := get(t, base+"/debug/gpumem/incidents"); status != http.StatusOK || !strings.Contains(page, `"files":`) {
			t.Errorf("the incidents: %d\n%s", status, page)
		}
		return true
	}, "--incidents", t.TempDir())
	if !served || code != exitClean {
		t.Errorf("served: %v, exit code %d", served, code)
	}
}

func TestAnAddressForEveryNetworkIsToBeSaid(t *testing.T) {
	for address, want := range map[string]string{":0": "say 127.0.0.1:0, or 0.0.0.0:0", "9464": "missing port"} {
		if _, err := listen(t.Context(), address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:0", "0.0.0.0:0"} {
		listener, err := listen(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		_ = listener.Close()
	}
}

func TestTheDemoHandsOutIncidentsOnLoopbackOnly(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:9464": true, "[::1]:0": true, "localhost:0": true, "127.3.2.1:0": true,
		"0.0.0.0:9464": false, "[::]:0": false, "10.0.0.7:0": false, "localhost.example:0": false, "127.0.0.1": false, "": false} {
		if onLoopback(address) != want {
			t.Errorf("%q: %v", address, !want)
		}
	}
}

// runChild runs the command as a process of its own, which ctx ends as an
// interrupt does, and hands each line of its standard output to line.
func runChild(ctx context.Context, t *testing.T, line func(string), args ...string) (code int) {
	program := filepath.Join(t.TempDir(), "fencepost") // testscript goes by the name
	if err := os.Symlink(os.Args[0], program); err != nil {
		t.Error(err)
		return -1
	}
	child := exec.CommandContext(ctx, program, args...)
	child.Cancel = func() error { return child.Process.Signal(os.Interrupt) }
	child.Env = append(os.Environ(), libcuda.PathVariable+"=no/libcuda.so.1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Error(err)
		return -1
	}
	if err := child.Start(); err != nil {
		t.Error(err)
		return -1
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line(lines.Text())
	}
	_ = child.Wait() // the code says it
	return child.ProcessState.ExitCode()
}
