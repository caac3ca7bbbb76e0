package loadgen_test

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
	"github.com/fencepost-gpu/fencepost/examples/service/internal/loadgen"
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
	service, err := web.New(web.Config{Runtime: rt, Engine: engine, TracerProvider: noop.NewTracerProvider(), Limits: patient(engine)})
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
func patient(engine *device.Engine) web.Limits {
	limits := web.DefaultLimits(engine)
	limits.Waiting, limits.Timeout = requests, time.Minute
	return limits
}

func unspoilt(h http.Handler) http.Handler { return h }

// requests is how many config asks for.
const requests = 100

// config sends all of its requests at once if it must: none is skipped because
// the machine is slow.
func config(url string) loadgen.Config {
	return loadgen.Config{URL: url, Rate: 2 * requests, For: 500 * time.Millisecond, InFlight: requests, Rows: 5000, Seed: 1, Timeout: 2 * time.Minute}
}

func TestEveryResultOfTheServiceIsRight(t *testing.T) {
	report, err := loadgen.Run(t.Context(), config(serve(t, 0, unspoilt)))
	must(t, err)
	if !report.Clean() || report.OK != requests || report.Skipped != 0 || report.Rows == 0 || len(report.Refused) > 0 {
		t.Errorf("%+v", report)
	}
	if l := report.Latency; l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.Max {
		t.Errorf("%+v", l)
	}
}

// A service that is short of memory refuses some, and that is no failure.
func TestRefusalsAreCountedByReason(t *testing.T) {
	cfg := config(serve(t, 60<<10, unspoilt))
	report, err := loadgen.Run(t.Context(), cfg)
	must(t, err)
	sum := report.OK
	for reason, n := range report.Refused {
		if reason != "503 out_of_budget" && reason != "413 exceeds_budget" {
			t.Errorf("%d with %s", n, reason)
		}
		sum += n
	}
	if !report.Clean() || sum != report.Sent || report.Refused["413 exceeds_budget"] == 0 {
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
		count  func(loadgen.Report) uint64
		says   string
	}{
		"another result": {func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"type":"uint32","keys":[7],"values":[7]}`)) },
			func(r loadgen.Report) uint64 { return r.Wrong }, ""},
		"an error": {func(w http.ResponseWriter) { http.Error(w, "oh", http.StatusInternalServerError) },
			func(r loadgen.Report) uint64 { return r.Refused["500"] }, "oh"},
		"no explanation": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodeOutOfBudget})
		}, func(r loadgen.Report) uint64 { return r.Refused["503 out_of_budget"] }, "without its explanation"},
		"no answer": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
			func(r loadgen.Report) uint64 { return r.Failed }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := loadgen.Run(t.Context(), config(serve(t, 0, spoilt(func(n int64, w http.ResponseWriter) bool {
				if n != 30 {
					return false
				}
				c.answer(w)
				return true
			}))))
			must(t, err)
			if report.Clean() || c.count(report) != 1 || !strings.Contains(report.FirstFailure, c.says) {
				t.Errorf("%+v", report)
			}
			var text bytes.Buffer
			report.Print(&text)
			if !strings.Contains(text.String(), strings.Trim(strconv.QuoteToASCII(report.FirstFailure), `"`)) || !strings.Contains(text.String(), "wrong") {
				t.Errorf("it prints\n%s", &text)
			}
		})
	}
}

func TestARunEndsWithItsContext(t *testing.T) {
	cfg := config(serve(t, 0, unspoilt))
	cfg.For = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	report, err := loadgen.Run(ctx, cfg)
	if err != nil || !report.Clean() || report.Took > 5*time.Minute {
		t.Errorf("%+v: %v", report, err)
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
	cfg := config(server.URL)
	cfg.Seed, cfg.Rows, cfg.Rate, cfg.For = seed, 200, 100, 300*time.Millisecond
	_, err := loadgen.Run(t.Context(), cfg)
	must(t, err)
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
	for name, spoil := range map[string]func(*loadgen.Config){
		"no rate":         func(c *loadgen.Config) { c.Rate = 0 },
		"a rate of NaN":   func(c *loadgen.Config) { c.Rate = math.NaN() },
		"too high a rate": func(c *loadgen.Config) { c.Rate = loadgen.MaxRate + 1 },
		"no time":         func(c *loadgen.Config) { c.For = 0 },
		"too much time":   func(c *loadgen.Config) { c.For = loadgen.MaxFor + 1 },
		"nothing flies":   func(c *loadgen.Config) { c.InFlight = 0 },
		"no rows":         func(c *loadgen.Config) { c.Rows = 0 },
		"no timeout":      func(c *loadgen.Config) { c.Timeout = 0 },
		"no URL":          func(c *loadgen.Config) { c.URL = "localhost:8080" },
		"another scheme":  func(c *loadgen.Config) { c.URL = "ftp://localhost" },
		"another host":    func(c *loadgen.Config) { c.URL = "http://192.0.2.1:8080" },
		"a name":          func(c *loadgen.Config) { c.URL = "http://localhost.example" },
	} {
		cfg := config("http://127.0.0.1:1")
		spoil(&cfg)
		if _, err := loadgen.Run(t.Context(), cfg); err == nil {
			t.Errorf("%s: %+v was taken", name, cfg)
		}
	}
	for _, url := range []string{"http://localhost:8080", "http://127.9.9.9", "https://[::1]:8080/"} {
		if err := config(url).Check(); err != nil {
			t.Error(err)
		}
	}
	cfg := config("http://192.0.2.1:8080")
	cfg.AnyHost = true
	must(t, cfg.Check())
}

// What a service answers may be anything, and none of it reaches the terminal.
func TestAReportPrintsNothingRaw(t *testing.T) {
	r := loadgen.Report{Refused: map[string]uint64{"500 \x1b[2J\u009b": 1}, FirstFailure: "request 1: 500 \x1b]0;title\x07\nfailed    0\u202e\xff"}
	var text bytes.Buffer
	r.Print(&text)
	for _, c := range text.String() {
		if c != '\n' && !unicode.IsPrint(c) || c == utf8.RuneError {
			t.Fatalf("it prints %q:\n%q", c, text.String())
		}
	}
	if !strings.Contains(text.String(), `500 \x1b[2J\u009b`) || strings.Count(text.String(), "\n") != 5 {
		t.Errorf("it prints\n%s", &text)
	}
}
