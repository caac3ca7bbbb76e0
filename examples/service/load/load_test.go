package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/web"
)

// TestMain clears the variables that would change what is built here.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "FENCEPOST_") {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve starts the service with a budget, and in front of it what spoils it.
func serve(t *testing.T, budget uint64, spoil func(http.Handler) http.Handler) (url string) {
	t.Helper()
	d, err := sim.Open(sim.Config{Bytes: 256 << 20})
	must(t, err)
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Driver: d, Budget: budget, Guard: "off"})
	must(t, err)
	engine, err := device.New(device.Config{Runtime: rt, TracerProvider: noop.NewTracerProvider()})
	must(t, err)
	service, err := web.New(web.Config{Runtime: rt, Engine: engine, TracerProvider: noop.NewTracerProvider(), Limits: patient})
	must(t, err)
	server := httptest.NewServer(spoil(service.Handler()))
	t.Cleanup(func() {
		server.Close()
		left, err := rt.Close(context.Background())
		if err != nil || len(left.Leaks) > 0 {
			t.Errorf("closing: %v, %+v", err, left)
		}
		must(t, d.Close())
	})
	return server.URL
}

// patient are limits that no request of a test meets, however slow the machine.
var patient = web.Limits{MaxBody: 64 << 20, MaxRows: 1 << 20, Waiting: requests, Timeout: time.Minute}

func unspoilt(h http.Handler) http.Handler { return h }

// requests is how many configFor asks for.
const requests = 100

// configFor sends all of its requests at once if it must: none is skipped because
// the machine is slow.
func configFor(url string) config {
	return config{url: url, rate: 2 * requests, length: 500 * time.Millisecond, inFlight: requests, rows: 5000, seed: 1, timeout: 2 * time.Minute}
}

func TestEveryResultOfTheServiceIsRight(t *testing.T) {
	report := newLoad(configFor(serve(t, 0, unspoilt))).run(t.Context())
	if !report.clean() || report.OK != requests || report.Skipped != 0 || report.Rows == 0 || len(report.Refused) > 0 {
		t.Errorf("%+v", report)
	}
	if l := report.Latency; l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.Max {
		t.Errorf("%+v", l)
	}
}

// A service that is short of memory refuses some, and that is no failure.
func TestRefusalsAreCountedByReason(t *testing.T) {
	cfg := configFor(serve(t, 60<<10, unspoilt))
	report := newLoad(cfg).run(t.Context())
	sum := report.OK
	for reason, n := range report.Refused {
		if reason != "503 out_of_budget" && reason != "413 exceeds_budget" {
			t.Errorf("%d with %s", n, reason)
		}
		sum += n
	}
	if !report.clean() || sum != report.Sent || report.Refused["413 exceeds_budget"] == 0 {
		t.Errorf("%+v", report)
	}
}

// spoilt answers in place of the service, at times.
func spoilt(answer func(n int64, w http.ResponseWriter) bool) func(http.Handler) http.Handler {
	var n atomic.Int64
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !answer(n.Add(1), w) {
				h.ServeHTTP(w, r)
			}
		})
	}
}

func TestWrongResultsAndFailuresAreSeen(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		count  func(report) uint64
		says   string
	}{
		"another result": {func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"keys":[7],"values":[7]}`)) },
			func(r report) uint64 { return r.Wrong }, ""},
		"an error": {func(w http.ResponseWriter) { http.Error(w, "oh", http.StatusInternalServerError) },
			func(r report) uint64 { return r.Refused["500"] }, "oh"},
		"no explanation": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodeOutOfBudget})
		}, func(r report) uint64 { return r.Refused["503 out_of_budget"] }, "without its explanation"},
		"no answer": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
			func(r report) uint64 { return r.Failed }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			report := newLoad(configFor(serve(t, 0, spoilt(func(n int64, w http.ResponseWriter) bool {
				if n != 30 {
					return false
				}
				c.answer(w)
				return true
			})))).run(t.Context())
			if report.clean() || c.count(report) != 1 || !strings.Contains(report.FirstFailure, c.says) {
				t.Errorf("%+v", report)
			}
			var text bytes.Buffer
			report.print(&text)
			if !strings.Contains(text.String(), strings.Trim(strconv.QuoteToASCII(report.FirstFailure), `"`)) || !strings.Contains(text.String(), "wrong") {
				t.Errorf("it prints\n%s", &text)
			}
		})
	}
}

func TestARunEndsWithItsContext(t *testing.T) {
	cfg := configFor(serve(t, 0, unspoilt))
	cfg.length = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	report := newLoad(cfg).run(ctx)
	if !report.clean() || report.Took > 5*time.Minute {
		t.Errorf("%+v", report)
	}
}

// recorded runs against a server that keeps what it gets.
func recorded(t *testing.T, seed uint64) (all []string) {
	t.Helper()
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, r.URL.String()+r.Header.Get("Content-Type")+string(body))
	}))
	defer server.Close()
	cfg := configFor(server.URL)
	cfg.seed, cfg.rows, cfg.rate, cfg.length = seed, 200, 100, 300*time.Millisecond
	newLoad(cfg).run(t.Context())
	return all
}

// Requests come in the order that the network has it, so what comes of one run
// is looked for in the other.
func TestTheSeedMakesTheRequests(t *testing.T) {
	first := recorded(t, 1)
	again, other := strings.Join(recorded(t, 1), "\n"), strings.Join(recorded(t, 2), "\n")
	same, different := 0, 0
	for _, r := range first {
		if strings.Contains(again, r) {
			same++
		}
		if !strings.Contains(other, r) {
			different++
		}
	}
	if len(first) != 30 || same < len(first) || different < len(first)*2/3 {
		t.Errorf("of %d requests %d came again, and %d with another seed did not", len(first), same, different)
	}
}

func TestConfigurationsOutOfBoundsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*config){
		"no rate":         func(c *config) { c.rate = 0 },
		"a rate of NaN":   func(c *config) { c.rate = math.NaN() },
		"too high a rate": func(c *config) { c.rate = maxRate + 1 },
		"no time":         func(c *config) { c.length = 0 },
		"too much time":   func(c *config) { c.length = maxLength + 1 },
		"nothing flies":   func(c *config) { c.inFlight = 0 },
		"no rows":         func(c *config) { c.rows = 0 },
		"no timeout":      func(c *config) { c.timeout = 0 },
		"no URL":          func(c *config) { c.url = "localhost:8080" },
		"another scheme":  func(c *config) { c.url = "ftp://localhost" },
		"another host":    func(c *config) { c.url = "http://192.0.2.1:8080" },
		"a name":          func(c *config) { c.url = "http://localhost.example" },
	} {
		cfg := configFor("http://127.0.0.1:1")
		spoil(&cfg)
		if cfg.check() == nil {
			t.Errorf("%s: %+v was taken", name, cfg)
		}
	}
	for _, url := range []string{"http://localhost:8080", "http://127.9.9.9", "https://[::1]:8080/"} {
		if err := configFor(url).check(); err != nil {
			t.Error(err)
		}
	}
	cfg := configFor("http://192.0.2.1:8080")
	cfg.anyHost = true
	must(t, cfg.check())
}

// What a service answers may be anything, and none of it reaches the terminal.
func TestAReportPrintsNothingRaw(t *testing.T) {
	r := report{Refused: map[string]uint64{"500 \x1b[2J\u009b": 1}, FirstFailure: "request 1: 500 \x1b]0;title\x07\nfailed    0\u202e\xff"}
	var text bytes.Buffer
	r.print(&text)
	for _, c := range text.String() {
		if c != '\n' && !unicode.IsPrint(c) || c == utf8.RuneError {
			t.Fatalf("it prints %q:\n%q", c, text.String())
		}
	}
	if !strings.Contains(text.String(), `500 \x1b[2J\u009b`) || strings.Count(text.String(), "\n") != 5 {
		t.Errorf("it prints\n%s", &text)
	}
}

// A service that hangs does not make requests pile up here without bound.
func TestRequestsBeyondTheBoundAreSkipped(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		http.Error(w, "", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	r := newLoad(config{url: server.URL, rate: 200, length: 200 * time.Millisecond, inFlight: 3, rows: 10, seed: 1, timeout: time.Minute})
	answer := sync.OnceFunc(func() { close(release) })
	defer answer()
	go func() {
		for r.due() < 40 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		answer()
	}()
	if report := r.run(t.Context()); report.Sent != 3 || report.Skipped != 37 || report.clean() {
		t.Errorf("%+v", report)
	}
}

// due is how many requests were due so far.
func (l *load) due() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report.Sent + l.report.Skipped
}

func TestWrongResultsEndWithOne(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer server.Close()
	args := []string{"-url=" + server.URL, "-rate=100", "-for=100ms", "-rows=10", "-seed=7"}
	var text bytes.Buffer
	if code := run(t.Context(), args, &text, io.Discard); code != exitProblem || !strings.Contains(text.String(), "seed 7") {
		t.Errorf("%d\n%s", code, &text)
	}
	var got report
	text.Reset()
	code := run(t.Context(), append(args, "-json"), &text, io.Discard)
	if err := json.Unmarshal(text.Bytes(), &got); err != nil || code != exitProblem || got.Wrong == 0 || got.Seed != 7 {
		t.Errorf("%d %v\n%s", code, err, &text)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for flag, want := range map[string]string{
		"-no-such":               "not defined",
		"extra":                  "flags only",
		"-rate=0":                "rate",
		"-url=http://192.0.2.77": "not this machine",
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), []string{flag}, io.Discard, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: %d\n%s", flag, code, &stderr)
		}
	}
	if code := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); code != exitClean {
		t.Errorf("-h: %d", code)
	}
}

func TestQuantilesAreOfWhatWasMeasured(t *testing.T) {
	var all []time.Duration
	for i := range 1000 {
		all = append(all, time.Duration(1000-i))
	}
	if got := latencyOf(all); got != (latency{500, 900, 990, 1000}) {
		t.Errorf("%+v", got)
	}
	if got := latencyOf([]time.Duration{7}); got != (latency{7, 7, 7, 7}) {
		t.Errorf("of one: %+v", got)
	}
}
