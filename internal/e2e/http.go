package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/health"
)

// HandlerOf is the operators' handler of runtimes.
func HandlerOf(t *testing.T, cfg fencepost.HandlerConfig, runtimes ...*fencepost.Runtime) http.Handler {
	t.Helper()
	cfg.Runtimes = runtimes
	h, err := fencepost.NewHandler(cfg)
	Succeed(t, "NewHandler", err)
	return h
}

// Request asks h as from this machine; headers are names and values in turn.
func Request(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	return request(h, method, target, body, func(r *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
	})
}

func request(h http.Handler, method, target, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, "http://127.0.0.1:9464"+target, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:40000"
	change(r)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// The types of a body that the guard's endpoint reads.
const (
	FormType = "application/x-www-form-urlencoded"
	JSONType = "application/json"
)

// Ask sends one request to the guard's endpoint, as from this machine unless
// change says otherwise.
func Ask(rt *fencepost.Runtime, method, contentType, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	return request(rt.GuardHandler(), method, "/guard", body, func(r *http.Request) {
		if r.Header.Set("Content-Type", contentType); change != nil {
			change(r)
		}
	})
}

// Becomes waits until the health is in a state for these reasons.
func Becomes(t *testing.T, rt *fencepost.Runtime, state string, reasons ...string) core.Health {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		h := rt.Health()
		if h.State == state && slices.Equal(ReasonsOf(h), reasons) {
			return h
		}
		if time.Now().After(deadline) {
			t.Fatalf("the health is %+v, want %v for %v", h, state, reasons)
		}
	}
}

// ReasonsOf are the reasons of a state of health.
func ReasonsOf(h core.Health) (reasons []string) {
	for _, s := range h.Signs {
		reasons = append(reasons, s.Reason)
	}
	return reasons
}

// Answer is the status and the body of an answer.
func Answer(h http.Handler, method string) (int, string) {
	w := Request(h, method, "/", "")
	return w.Code, w.Body.String()
}

// Reported is the status and the report of a probe's answer.
func Reported(t *testing.T, h http.Handler) (code int, r fencepost.HealthReport) {
	t.Helper()
	code, body := Answer(h, http.MethodGet)
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Errorf("%v in %s", err, body)
	}
	return code, r
}

// Probes answers both probes at once.
func Probes(t *testing.T, rt *fencepost.Runtime, healthz, readyz int, state string) {
	t.Helper()
	for name, c := range map[string]struct {
		handler http.Handler
		want    int
	}{"healthz": {rt.HealthHandler(), healthz}, "readyz": {rt.ReadyHandler(), readyz}} {
		if code, r := Reported(t, c.handler); code != c.want || r.State != state || r.Stack != rt.String() {
			t.Errorf("%s in state %s: %d %+v, want %d", name, state, code, r, c.want)
		}
	}
}

// ReadHealth is what the rules of health look at.
func ReadHealth(rt *fencepost.Runtime) health.Reading {
	return health.Sources{Stats: rt.Stats(), Guard: rt.Guard().GuardStats(), Streams: rt.Streams().Stats(), Operations: rt.Operations(),
		Findings: rt.Findings(), Drift: rt.DeviceMemory().Drift}.Reading()
}

// StaysWell checks that nothing since Open is a reason to call the runtime ill.
func StaysWell(t *testing.T, rt *fencepost.Runtime) {
	t.Helper()
	if signs := health.NewRules(health.DefaultHold).Look(ReadHealth(rt), time.Now()); len(signs) != 0 {
		t.Errorf("it is ill: %+v", signs)
	}
	if h := rt.Health(); h.State != names.HealthOK {
		t.Errorf("it says %+v", h)
	}
}

// Scrape reads the metrics that have no label but the device, and sums those
// that have.
func Scrape(t *testing.T, rt *fencepost.Runtime) map[string]float64 {
	t.Helper()
	families, err := registryOf(t, rt).Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[f.GetName()] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

// Gather is the metrics as text.
func Gather(t *testing.T, rt *fencepost.Runtime) string {
	t.Helper()
	return Request(promhttp.HandlerFor(registryOf(t, rt), promhttp.HandlerOpts{}), http.MethodGet, "/metrics", "").Body.String()
}

func registryOf(t *testing.T, rt *fencepost.Runtime) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	Succeed(t, "registering", registry.Register(rt.Collector()))
	return registry
}
