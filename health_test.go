package fencepost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/health"
)

// becomes waits until the health is in a state for these reasons.
func becomes(t *testing.T, rt *fencepost.Runtime, state core.HealthState, reasons ...core.HealthReason) core.Health {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		h := rt.Health()
		if h.State == state && slices.Equal(reasonsOf(h), reasons) {
			return h
		}
		if time.Now().After(deadline) {
			t.Fatalf("the health is %+v, want %v for %v", h, state, reasons)
		}
	}
}

func reasonsOf(h core.Health) (reasons []core.HealthReason) {
	for _, s := range h.Signs {
		reasons = append(reasons, s.Reason)
	}
	return reasons
}

func answer(h http.Handler, method string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
	return w.Code, w.Body.String()
}

func reported(t *testing.T, h http.Handler) (code int, r fencepost.HealthReport) {
	t.Helper()
	code, body := answer(h, http.MethodGet)
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Errorf("%v in %s", err, body)
	}
	return code, r
}

// probes answers both probes at once.
func probes(t *testing.T, rt *fencepost.Runtime, healthz, readyz int, state string) {
	t.Helper()
	for name, c := range map[string]struct {
		handler http.Handler
		want    int
	}{"healthz": {rt.HealthHandler(), healthz}, "readyz": {rt.ReadyHandler(), readyz}} {
		if code, r := reported(t, c.handler); code != c.want || r.State != state || r.Stack != rt.String() {
			t.Errorf("%s in state %s: %d %+v, want %d", name, state, code, r, c.want)
		}
	}
}

func TestTheProbesFollowTheLifeOfARuntime(t *testing.T) {
	rt := open(t, fencepost.Config{})
	probes(t, rt, 200, 200, "ok")
	if _, err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	probes(t, rt, 200, 503, "closed")

	rt = openDirty(t, fencepost.Config{})
	simulated(rt).LoseContext(driver.IllegalAddress)
	_, _ = rt.Allocate(t.Context(), core.Request{Bytes: 64}) // meets the loss
	probes(t, rt, 503, 503, "poisoned")
	if _, r := reported(t, rt.HealthHandler()); r.Reasons[0].Reason != "sticky_error" || !strings.Contains(r.Reason, "ILLEGAL_ADDRESS") || r.Reasons[0].Since.IsZero() || r.Findings["sticky-error"] != 1 {
		t.Errorf("%+v", r)
	}
	_, _ = rt.Close(t.Context())
	probes(t, rt, 503, 503, "poisoned")
}

func TestAServiceMayBeUnreadyForItsOwnReasons(t *testing.T) {
	rt := open(t, fencepost.Config{})
	var stopping error
	ready := rt.ReadyHandler(func() error { return nil }, func() error { return stopping })
	if code, r := reported(t, ready); code != 200 || r.NotReady != "" {
		t.Errorf("%d %+v", code, r)
	}
	stopping = errors.New("the service stops")
	if code, r := reported(t, ready); code != 503 || r.NotReady != "the service stops" || r.State != "ok" {
		t.Errorf("%d %+v", code, r)
	}
}

func TestProbesAnswerGetAndHeadOnly(t *testing.T) {
	rt := open(t, fencepost.Config{})
	for method, want := range map[string]int{http.MethodGet: 200, http.MethodHead: 200, http.MethodPost: 405, http.MethodDelete: 405} {
		if code, _ := answer(rt.HealthHandler(), method); code != want {
			t.Errorf("%s: %d, want %d", method, code, want)
		}
	}
}

func TestAFindingDegradesAndIsNotFatal(t *testing.T) {
	rt := openDirty(t, fencepost.Config{Guard: "hunt", HealthHold: 100 * time.Millisecond})
	s := lease(t, rt, "s")
	b := allocate(t, rt, 64, s.ID(), "a")
	free(t, rt, b)
	_, _ = rt.Deallocate(t.Context(), b.ID) // a double free
	h := becomes(t, rt, core.HealthDegraded, core.HealthFindings)
	if !h.OK || h.Reason != "findings: 1 finding" || h.Err != nil {
		t.Errorf("%+v", h)
	}
	probes(t, rt, 200, 200, "degraded")
	if text := gather(t, rt); !strings.Contains(text, `gpumem_health{device="0",state="degraded"} 1`) || !strings.Contains(text, `gpumem_health_reasons{device="0",reason="findings"} 1`) {
		t.Error("the metrics do not say so")
	}
	becomes(t, rt, core.HealthOK)
	probes(t, rt, 200, 200, "ok")
}

func TestARefusalStormDegrades(t *testing.T) {
	rt := open(t, fencepost.Config{Budget: 1 << 20, Guard: "off"})
	held := allocate(t, rt, 1<<19, core.DefaultStream, "held")
	for range 10 {
		if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 1 << 20}); !errors.Is(err, core.ErrOutOfBudget) {
			t.Fatal(err)
		}
	}
	becomes(t, rt, core.HealthDegraded, core.HealthRefusalStorm)
	free(t, rt, held)
}

func TestWhatTelemetryLosesDegrades(t *testing.T) {
	var lost atomic.Uint64
	rt := open(t, fencepost.Config{TelemetryLost: lost.Load})
	lost.Store(3)
	h := becomes(t, rt, core.HealthDegraded, core.HealthTelemetryLoss)
	if h.Signs[0].Text != "3 records, incidents or spans lost" {
		t.Errorf("%+v", h)
	}
}

func TestCallersThatWaitForAStreamDegrade(t *testing.T) {
	rt := open(t, fencepost.Config{Streams: 1})
	held := lease(t, rt, "held")
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if l, err := rt.Streams().Acquire(ctx, "waiting"); err == nil {
			_ = l.Release()
		}
	})
	becomes(t, rt, core.HealthDegraded, core.HealthStreamsExhausted)
	cancel()
	waiting.Wait()
	if err := held.Release(); err != nil {
		t.Error(err)
	}
}

// Each change is told once, in order, to the callback and the log.
func TestEachChangeOfHealthIsTold(t *testing.T) {
	var told []core.Health
	var log bytes.Buffer
	cfg := fencepost.Config{Guard: "hunt", HealthHold: 50 * time.Millisecond, OnHealth: func(h core.Health) { told = append(told, h) }}
	cfg.Findings.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	rt := openDirty(t, cfg)
	s := lease(t, rt, "s")
	b := allocate(t, rt, 64, s.ID(), "a")
	free(t, rt, b)
	_, _ = rt.Deallocate(t.Context(), b.ID)
	becomes(t, rt, core.HealthDegraded, core.HealthFindings)
	becomes(t, rt, core.HealthOK)
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, h := range told { // nobody calls any more
		states = append(states, h.State.String())
	}
	if !slices.Equal(states, []string{"degraded", "ok", "closed"}) {
		t.Errorf("told %v", states)
	}
	var logged []string
	for line := range strings.Lines(log.String()) {
		var r struct{ Level, Msg, State string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if state, ok := strings.CutPrefix(r.Msg, "gpu memory health: "); ok {
			logged = append(logged, r.Level+" "+state)
		}
	}
	if !slices.Equal(logged, []string{"WARN degraded", "INFO ok", "INFO closed"}) {
		t.Errorf("logged %v of\n%s", logged, log.String())
	}
}

func TestALostDeviceIsToldAtOnce(t *testing.T) {
	told := make(chan core.Health, 8)
	rt := openDirty(t, fencepost.Config{OnHealth: func(h core.Health) { told <- h }})
	simulated(rt).LoseContext(driver.IllegalAddress)
	_, _ = rt.Allocate(t.Context(), core.Request{Bytes: 64})
	select {
	case h := <-told:
		if h.State != core.HealthPoisoned || !errors.Is(h.Err, core.ErrSticky) || h.OK {
			t.Errorf("%+v", h)
		}
	case <-time.After(20 * time.Second):
		t.Error("nobody was told")
	}
}

// Many read the health while it changes; the race detector looks on.
func TestHealthIsReadWhileItChanges(t *testing.T) {
	rt := openDirty(t, fencepost.Config{HealthHold: time.Millisecond})
	var readers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				h := rt.Health()
				if h.OK != (h.State <= core.HealthDegraded) || (h.State == core.HealthOK) != (h.Reason == "") {
					t.Errorf("%+v", h)
					return
				}
				rt.HealthReport()
			}
		})
	}
	for range 50 {
		_, _ = rt.Deallocate(t.Context(), core.BlockID{Generation: 1}) // a foreign free
	}
	rt.ReportSticky("test", &core.DriverError{Sticky: true})
	_, _ = rt.Close(t.Context())
	cancel()
	readers.Wait()
	if h := rt.Health(); h.State != core.HealthPoisoned {
		t.Errorf("%+v", h)
	}
}

// What another runtime's exporter lost before this one was opened is not this
// one's loss.
func TestWhatWasLostBeforeIsNotHeldAgainstARuntime(t *testing.T) {
	var lost atomic.Uint64
	lost.Store(7)
	told := make(chan core.Health, 8)
	rt := open(t, fencepost.Config{TelemetryLost: lost.Load, OnHealth: func(h core.Health) { told <- h }})
	lost.Add(2)
	if h := <-told; h.State != core.HealthDegraded || h.Signs[0].Text != "2 records, incidents or spans lost" {
		t.Errorf("%+v", h)
	}
	becomes(t, rt, core.HealthDegraded, core.HealthTelemetryLoss)
}

// A service that is idle learns that its device is lost, too: the probe would
// else say ok until the next request.
func TestALostDeviceIsNoticedWithoutACall(t *testing.T) {
	rt := openDirty(t, fencepost.Config{})
	simulated(rt).LoseContext(driver.IllegalAddress)
	h := becomes(t, rt, core.HealthPoisoned, core.HealthStickyError)
	if !errors.Is(h.Err, core.ErrSticky) {
		t.Errorf("%+v", h)
	}
	probes(t, rt, 503, 503, "poisoned")
	_, _ = rt.Allocate(t.Context(), core.Request{Bytes: 64}) // is refused
	time.Sleep(2 * cuda.DefaultWatchInterval)
	if n := rt.StickyErrors(); n != 1 {
		t.Errorf("it was told %d times", n)
	}
}

func TestACallbackThatHangsIsNamedByClose(t *testing.T) {
	called, release := make(chan struct{}), make(chan struct{})
	rt := openDirty(t, fencepost.Config{Guard: "ledger", OnHealth: func(h core.Health) {
		if h.State == core.HealthDegraded {
			close(called)
			<-release
		}
	}})
	_, _ = rt.Deallocate(t.Context(), core.BlockID{Generation: 1}) // a foreign free
	<-called
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := rt.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "OnHealth") {
		t.Errorf("Close says %v", err)
	}
	close(release)
}

// What a guard that is turned down to its ledger leaves undone is nobody's loss.
func TestAGuardThatIsTurnedDownHasNoGaps(t *testing.T) {
	r, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Guard: "hunt"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Allocate(t.Context(), core.Request{Bytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	rules, ledger := health.NewRules(fencepost.DefaultHealthHold), "ledger"
	rules.Look(fencepost.ReadHealth(r), time.Now())
	if err := r.SwitchGuard(t.Context(), fencepost.GuardChange{Mode: &ledger}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Deallocate(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if r.Guard().GuardStats().Unchecked == 0 {
		t.Error("nothing was left undone, so nothing was tested")
	}
	if signs := rules.Look(fencepost.ReadHealth(r), time.Now()); len(signs) != 0 {
		t.Errorf("%+v", signs)
	}
	if _, err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
