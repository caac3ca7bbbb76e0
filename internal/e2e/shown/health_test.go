package shown_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestTheProbesFollowTheLifeOfARuntime(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	e2e.Probes(t, rt, 200, 200, "ok")
	must.Get(rt.Close(t.Context()))(t)
	e2e.Probes(t, rt, 200, 503, "closed")

	rt = e2e.OpenDirty(t, fencepost.Config{})
	e2e.Simulated(rt).LoseContext(driver.IllegalAddress)
	_, _ = rt.Allocate(t.Context(), core.Request{Bytes: 64}) // meets the loss
	e2e.Probes(t, rt, 503, 503, "poisoned")
	if _, r := e2e.Reported(t, rt.HealthHandler()); r.Reasons[0].Reason != "sticky_error" || !strings.Contains(r.Reason, "ILLEGAL_ADDRESS") || r.Reasons[0].Since.IsZero() || r.Findings["sticky-error"] != 1 {
		t.Errorf("%+v", r)
	}
	_, _ = rt.Close(t.Context())
	e2e.Probes(t, rt, 503, 503, "poisoned")
}

func TestAServiceMayBeUnreadyForItsOwnReasons(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	var stopping error
	ready := rt.ReadyHandler(func() error { return nil }, func() error { return stopping })
	if code, r := e2e.Reported(t, ready); code != 200 || r.NotReady != "" {
		t.Errorf("%d %+v", code, r)
	}
	stopping = errors.New("the service stops")
	if code, r := e2e.Reported(t, ready); code != 503 || r.NotReady != "the service stops" || r.State != "ok" {
		t.Errorf("%d %+v", code, r)
	}
}

func TestProbesAnswerGetAndHeadOnly(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	for method, want := range map[string]int{http.MethodGet: 200, http.MethodHead: 200, http.MethodPost: 405, http.MethodDelete: 405} {
		if code, _ := e2e.Answer(rt.HealthHandler(), method); code != want {
			t.Errorf("%s: %d, want %d", method, code, want)
		}
	}
}

func TestAFindingDegradesAndIsNotFatal(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt", HealthHold: 100 * time.Millisecond})
	s := e2e.Lease(t, rt, "s")
	b := e2e.Allocate(t, rt, 64, s.ID(), "a")
	e2e.Free(t, rt, b)
	_, _ = rt.Deallocate(t.Context(), b.ID) // a double free
	h := e2e.Becomes(t, rt, names.HealthDegraded, names.HealthFindings)
	if !h.OK || h.Reason != "findings: 1 finding" || h.Err != nil {
		t.Errorf("%+v", h)
	}
	e2e.Probes(t, rt, 200, 200, "degraded")
	if text := e2e.Gather(t, rt); !strings.Contains(text, `gpumem_health{device="0",state="degraded"} 1`) || !strings.Contains(text, `gpumem_health_reasons{device="0",reason="findings"} 1`) {
		t.Error("the metrics do not say so")
	}
	e2e.Becomes(t, rt, names.HealthOK)
	e2e.Probes(t, rt, 200, 200, "ok")
}

func TestARefusalStormDegrades(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 1 << 20, Guard: "off"})
	held := e2e.Allocate(t, rt, 1<<19, core.DefaultStream, "held")
	for range 10 {
		if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 1 << 20}); !errors.Is(err, core.ErrOutOfBudget) {
			t.Fatal(err)
		}
	}
	e2e.Becomes(t, rt, names.HealthDegraded, names.HealthRefusalStorm)
	e2e.Free(t, rt, held)
}

func TestWhatTelemetryLosesDegrades(t *testing.T) {
	var lost atomic.Uint64
	rt := e2e.Open(t, fencepost.Config{TelemetryLost: lost.Load})
	lost.Store(3)
	h := e2e.Becomes(t, rt, names.HealthDegraded, names.HealthTelemetryLoss)
	if h.Signs[0].Text != "3 records, incidents or spans lost" {
		t.Errorf("%+v", h)
	}
}

func TestCallersThatWaitForAStreamDegrade(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Streams: 1})
	held := e2e.Lease(t, rt, "held")
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if l, err := rt.Streams().Acquire(ctx, "waiting"); err == nil {
			_ = l.Release()
		}
	})
	e2e.Becomes(t, rt, names.HealthDegraded, names.HealthStreamsExhausted)
	cancel()
	waiting.Wait()
	expect.Success(t, held.Release())
}

// Each change is told once, in order, to the callback and the log.
func TestEachChangeOfHealthIsTold(t *testing.T) {
	var told []core.Health
	var log bytes.Buffer
	cfg := fencepost.Config{Guard: "hunt", HealthHold: 50 * time.Millisecond, OnHealth: func(h core.Health) { told = append(told, h) }}
	cfg.Findings.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	rt := e2e.OpenDirty(t, cfg)
	s := e2e.Lease(t, rt, "s")
	b := e2e.Allocate(t, rt, 64, s.ID(), "a")
	e2e.Free(t, rt, b)
	_, _ = rt.Deallocate(t.Context(), b.ID)
	e2e.Becomes(t, rt, names.HealthDegraded, names.HealthFindings)
	e2e.Becomes(t, rt, names.HealthOK)
	must.Do(t, s.Release())
	must.Get(rt.Close(t.Context()))(t)
	var states []string
	for _, h := range told { // nobody calls any more
		states = append(states, h.State)
	}
	if !slices.Equal(states, []string{"degraded", "ok", "closed"}) {
		t.Errorf("told %v", states)
	}
	var logged []string
	for line := range strings.Lines(log.String()) {
		var r struct{ Level, Msg, State string }
		must.Do(t, json.Unmarshal([]byte(line), &r))
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
	rt := e2e.OpenDirty(t, fencepost.Config{OnHealth: func(h core.Health) { told <- h }})
	e2e.Simulated(rt).LoseContext(driver.IllegalAddress)
	_, _ = rt.Allocate(t.Context(), core.Request{Bytes: 64})
	select {
	case h := <-told:
		if h.State != names.HealthPoisoned || !errors.Is(h.Err, core.ErrSticky) || h.OK {
			t.Errorf("%+v", h)
		}
	case <-time.After(time.Minute):
		t.Error("nobody was told")
	}
}

// Many read the health while it changes; the race detector looks on.
func TestHealthIsReadWhileItChanges(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{HealthHold: time.Millisecond})
	var readers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				h := rt.Health()
				if h.OK != (h.State == names.HealthOK || h.State == names.HealthDegraded) || (h.State == names.HealthOK) != (h.Reason == "") {
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
	rt.Core().ReportSticky("test", &core.DriverError{Sticky: true})
	_, _ = rt.Close(t.Context())
	cancel()
	readers.Wait()
	if h := rt.Health(); h.State != names.HealthPoisoned {
		t.Errorf("%+v", h)
	}
}

// What another runtime's exporter lost before this one was opened is not this
// one's loss.
func TestWhatWasLostBeforeIsNotHeldAgainstARuntime(t *testing.T) {
	var lost atomic.Uint64
	lost.Store(7)
	told := make(chan core.Health, 8)
	rt := e2e.Open(t, fencepost.Config{TelemetryLost: lost.Load, OnHealth: func(h core.Health) { told <- h }})
	lost.Add(2)
	if h := <-told; h.State != names.HealthDegraded || h.Signs[0].Text != "2 records, incidents or spans lost" {
		t.Errorf("%+v", h)
	}
	e2e.Becomes(t, rt, names.HealthDegraded, names.HealthTelemetryLoss)
}

// A service that is idle learns that its device is lost, too: the probe would
// else say ok until the next request.
func TestALostDeviceIsNoticedWithoutACall(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{})
	e2e.Simulated(rt).LoseContext(driver.IllegalAddress)
	h := e2e.Becomes(t, rt, names.HealthPoisoned, names.HealthStickyError)
	if !errors.Is(h.Err, core.ErrSticky) {
		t.Errorf("%+v", h)
	}
	e2e.Probes(t, rt, 503, 503, "poisoned")
	_, _ = rt.Allocate(t.Context(), core.Request{Bytes: 64}) // is refused
	time.Sleep(2 * time.Second)
	if n := rt.Core().StickyErrors(); n != 1 {
		t.Errorf("it was told %d times", n)
	}
}

func TestACallbackThatHangsIsNamedByClose(t *testing.T) {
	called, release := make(chan struct{}), make(chan struct{})
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "ledger", OnHealth: func(h core.Health) {
		if h.State == names.HealthDegraded {
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
