package shown_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	model "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// everyPath are the paths that the handler serves.
var everyPath = []string{"/metrics", "/healthz", "/readyz", "/debug/gpumem/", "/debug/gpumem/live.js", "/debug/gpumem/state", "/debug/gpumem/past", "/debug/gpumem/blocks",
	"/debug/gpumem/map?from=0&to=0x800000000000",
	"/debug/gpumem/history", "/debug/gpumem/history?format=perfetto", "/debug/gpumem/guard", "/debug/pprof/gpumem", "/debug/pprof/gpumem?debug=1"}

func TestOneHandlerServesEverything(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "ledger"})
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{}, rt)
	b := e2e.Allocate(t, rt, 1<<20, core.DefaultStream, "cache")
	for path, want := range map[string][2]string{
		"/metrics":                             {"text/plain", `gpumem_memory_bytes{device="0",state="live"} 1.048576e+06`},
		"/healthz":                             {"application/json", `"state":"ok"`},
		"/readyz":                              {"application/json", `"state":"ok"`},
		"/debug/gpumem/":                       {"text/html", "<title>GPU memory</title>"},
		"/debug/gpumem/live.js":                {"javascript", "fetch("},
		"/debug/gpumem/uplot/uPlot.min.css":    {"text/css", ".uplot"},
		"/debug/gpumem/state":                  {"application/json", `"tag":"cache"`},
		"/debug/gpumem/blocks":                 {"application/json", fmt.Sprintf(`"ptr":"%#x"`, b.ID.Ptr)},
		"/debug/gpumem/history":                {"application/x-ndjson", `"op":"allocate"`},
		"/debug/gpumem/history?format=pytorch": {"application/octet-stream", "cache"},
		"/debug/gpumem/guard":                  {"application/json", `"setting":"ledger"`},
		"/debug/pprof/gpumem?debug=1":          {"text/plain", "TestOneHandlerServesEverything"},
	} {
		w := e2e.Request(h, http.MethodGet, path, "")
		if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Type"), want[0]) || !strings.Contains(w.Body.String(), want[1]) {
			t.Errorf("%s: %d %s, without %q:\n%.400s", path, w.Code, w.Header().Get("Content-Type"), want[1], w.Body)
		}
	}
	e2e.Free(t, rt, b)
	if w := e2e.Request(h, http.MethodGet, "/elsewhere", ""); w.Code != http.StatusNotFound {
		t.Errorf("an unknown path: %d", w.Code)
	}
}

// What a web page asks whose own name was made to lead here is answered on no path.
func TestEveryPathIsAskedForByANameThatIsNoOtherSites(t *testing.T) {
	t.Setenv("FENCEPOST_HOSTS", "gpu.example.com, .proxy.example.com")
	rt := e2e.Open(t, fencepost.Config{Guard: "ledger", Incidents: t.TempDir()})
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{GoProfiles: true, Incidents: true}, rt)
	for host, want := range map[string]int{"evil.com": http.StatusForbidden, "10.1.2.3:9464": http.StatusOK, "gpu.example.com": http.StatusOK, "a.proxy.example.com:80": http.StatusOK} {
		for _, path := range append(everyPath, "/debug/gpumem/incidents", "/debug/pprof/heap") {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+path, nil)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, req); w.Code != want {
				t.Errorf("%s at %s: %d, want %d: %.200s", path, host, w.Code, want, w.Body)
			}
		}
	}
	for _, bad := range []string{"http://gpu.example.com", "gpu.example.com:80", "a,,b"} {
		t.Setenv("FENCEPOST_HOSTS", bad)
		if err := (fencepost.Config{}).Check(); err == nil || !strings.Contains(err.Error(), "FENCEPOST_HOSTS") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestMetricsAreOfferedWithExemplarsAndNativeHistograms(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, core.DefaultStream, "a"))
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{}, rt)
	for accept, want := range map[string]string{
		"application/openmetrics-text; version=1.0.0":   "application/openmetrics-text",
		string(expfmt.NewFormat(expfmt.TypeProtoDelim)): "application/vnd.google.protobuf",
	} {
		if w := e2e.Request(h, http.MethodGet, "/metrics", "", "Accept", accept); w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), want) {
			t.Errorf("asked for %s: %d %s", accept, w.Code, w.Header().Get("Content-Type"))
		}
	}
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	decoder, native := expfmt.NewDecoder(e2e.Request(h, http.MethodGet, "/metrics", "", "Accept", string(format)).Body, format), 0
	for {
		var family model.MetricFamily
		if err := decoder.Decode(&family); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, m := range family.GetMetric() {
			if m.GetHistogram().GetSampleCount() > 0 && len(m.GetHistogram().GetPositiveSpan()) > 0 {
				native++
			}
		}
	}
	if native == 0 {
		t.Error("no native histogram is in the protobuf")
	}
}

func TestAServicesOwnMetricsAreServedToo(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(rt.Collector(), prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "own", Help: "Own."}, func() float64 { return 42 }))
	page := e2e.Request(e2e.HandlerOf(t, fencepost.HandlerConfig{Gatherer: registry}, rt), http.MethodGet, "/metrics", "").Body.String()
	if !strings.Contains(page, "\nown 42\n") || !strings.Contains(page, "gpumem_blocks{") {
		t.Errorf("%.600s", page)
	}
}

func TestNothingIsChangedUnlessThatIsSwitchedOn(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "ledger"})
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{}, rt)
	before := rt.GuardStatus()
	for _, path := range everyPath {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if w := e2e.Request(h, method, path, "mode=hunt", "Content-Type", e2e.FormType); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
		}
	}
	if after := rt.GuardStatus(); after.Setting != before.Setting {
		t.Errorf("the guard was %s and is %s", before.Setting, after.Setting)
	}
	if w := e2e.Request(h, http.MethodPost, "/debug/gpumem/guard", "mode=hunt", "Content-Type", e2e.FormType); !strings.Contains(w.Body.String(), "HandlerConfig.SwitchGuard") {
		t.Errorf("the refusal does not say what to do: %s", w.Body)
	}
	h = e2e.HandlerOf(t, fencepost.HandlerConfig{SwitchGuard: true}, rt)
	if s := statusIn(t, e2e.Request(h, http.MethodPost, "/debug/gpumem/guard", "mode=hunt", "Content-Type", e2e.FormType)); s.Setting != "hunt" {
		t.Errorf("switched on, it is %s", s.Setting)
	}
	if w := e2e.Request(h, http.MethodPost, "/debug/gpumem/guard", "mode=off", "Content-Type", e2e.FormType, "X-Forwarded-For", "10.0.0.1"); w.Code != http.StatusForbidden {
		t.Errorf("through a proxy: %d", w.Code)
	}
}

func TestNothingThatIsServedCallsTheDevice(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "ledger"})
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{}, rt)
	e2e.Succeed(t, "Drain", rt.Drain(t.Context()))
	for _, path := range everyPath {
		before := deviceCalls(rt)
		for range 5 {
			e2e.Request(h, http.MethodGet, path, "")
		}
		if after := deviceCalls(rt); after != before {
			t.Errorf("%s made %d device calls", path, after-before)
		}
	}
}

// deviceCalls counts them, without those that the runtime makes by its ticker.
func deviceCalls(rt *fencepost.Runtime) (n uint64) {
	calls := e2e.Simulated(rt).Calls()
	for _, ticked := range []string{"PoolStats", "MemInfo"} {
		delete(calls, ticked)
	}
	for _, c := range calls {
		n += c
	}
	return n
}

func TestSeveralDevicesAreServedByOneHandler(t *testing.T) {
	two, five := e2e.Open(t, fencepost.Config{Ordinal: 2, Guard: "ledger"}), e2e.OpenDirty(t, fencepost.Config{Ordinal: 5, Guard: "off"})
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{SwitchGuard: true}, two, five)
	if page := e2e.Request(h, http.MethodGet, "/metrics", "").Body.String(); !strings.Contains(page, `device="2"`) || !strings.Contains(page, `device="5"`) {
		t.Error("a device has no metrics")
	}
	if s := statusIn(t, e2e.Request(h, http.MethodPost, "/debug/gpumem/guard?device=5", "mode=hunt", "Content-Type", e2e.FormType)); s.Setting != "hunt" || two.GuardStatus().Setting != "ledger" {
		t.Errorf("device 5 is %s, device 2 %s", s.Setting, two.GuardStatus().Setting)
	}
	for _, path := range []string{"/debug/gpumem/guard", "/debug/gpumem/history", "/debug/pprof/gpumem", "/debug/pprof/gpumem?device=0"} {
		if w := e2e.Request(h, http.MethodGet, path, ""); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "[2 5]") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	var live struct{ Device struct{ Ordinal int } }
	if err := json.Unmarshal(e2e.Request(h, http.MethodGet, "/debug/gpumem/state?device=5", "").Body.Bytes(), &live); err != nil || live.Device.Ordinal != 5 {
		t.Errorf("%+v, %v", live, err)
	}
	health := func(path string, want int, states ...string) {
		t.Helper()
		var reports []fencepost.HealthReport
		w := e2e.Request(h, http.MethodGet, path, "")
		err := json.Unmarshal(w.Body.Bytes(), &reports)
		var got []string
		for _, r := range reports {
			got = append(got, r.State)
		}
		if err != nil || w.Code != want || !slices.Equal(got, states) {
			t.Errorf("%s: %d %v %v, want %d %v", path, w.Code, got, err, want, states)
		}
	}
	health("/healthz", 200, "ok", "ok")
	e2e.Simulated(five).LoseContext(700)
	_, _ = five.Allocate(t.Context(), core.Request{Bytes: 64}) // meets the loss
	health("/healthz", 503, "ok", "poisoned")
	health("/readyz", 503, "ok", "poisoned")
}

func TestAServiceSaysItselfWhenItIsNotReady(t *testing.T) {
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{Ready: []func() error{func() error { return io.ErrClosedPipe }}}, e2e.Open(t, fencepost.Config{}))
	if w := e2e.Request(h, http.MethodGet, "/readyz", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), io.ErrClosedPipe.Error()) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := e2e.Request(h, http.MethodGet, "/healthz", ""); w.Code != http.StatusOK {
		t.Errorf("health: %d", w.Code)
	}
}

func TestAHandlerOfNothingIsRefused(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	for name, runtimes := range map[string][]*fencepost.Runtime{"none": nil, "nil": {nil}, "twice": {rt, rt}} {
		if _, err := fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: runtimes}); err == nil || !strings.Contains(err.Error(), "Runtimes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a refusal said is there for who looks later, however many operations the
// log has had since.
func TestTheLiveViewRemembersRefusals(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 8 << 20, History: 64, Guard: "ledger"})
	h := e2e.HandlerOf(t, fencepost.HandlerConfig{}, rt)
	held := e2e.Allocate(t, rt, 6<<20, core.DefaultStream, "holder")
	for range 40 {
		if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 4 << 20, Tag: "asker"}); err == nil {
			t.Fatal("it was not refused")
		}
	}
	for range 200 {
		e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, core.DefaultStream, "busy"))
	}
	var live struct {
		Device struct {
			Refusals struct {
				Total uint64
				Items []struct {
					Tag    string
					Budget struct{ Holders []struct{ Tag string } }
				}
			}
		}
	}
	e2e.Succeed(t, "state", json.Unmarshal(e2e.Request(h, http.MethodGet, "/debug/gpumem/state", "").Body.Bytes(), &live))
	r := live.Device.Refusals
	if r.Total != 40 || len(r.Items) != 32 || r.Items[0].Tag != "asker" || r.Items[0].Budget.Holders[0].Tag != "holder" {
		t.Errorf("%+v", r)
	}
	e2e.Free(t, rt, held)
}
