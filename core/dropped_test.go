package core_test

import (
	"bytes"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// logBook is what the process logged.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func captureLog(t *testing.T) *logBook {
	t.Helper()
	log, before := new(logBook), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

// collectUntil runs the collector until done, or for long enough on any machine.
func collectUntil(done func() bool) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		runtime.GC()
		if done() {
			return true
		}
	}
	return false
}

//go:noinline
func dropAfterPreflight(t *testing.T, rt *core.Runtime, b core.Block) {
	rec := core.NewStrictRecorder(1).Named("forgotten kernel")
	succeed(t, "write", rec.Write(b))
	succeed(t, "preflight", rec.Preflight(t.Context(), rt))
}

func TestDroppedRecorderIsClosedAndReported(t *testing.T) {
	log := captureLog(t)
	rt, _, found := fakeRuntime(t)
	dropAfterPreflight(t, rt, alloc(t, rt, 64))
	if !collectUntil(func() bool { return rt.Stats().OpenIntents == 0 }) {
		t.Fatal("the ticket of a dropped recorder is still open")
	}
	mustBe(t, "launches", rt.Stats().Launches, uint64(1))
	mustBe(t, "aborts", rt.Stats().Aborts, uint64(0))
	if !collectUntil(func() bool { return found.count() == 1 }) {
		t.Fatal("a dropped recorder was not reported as a finding")
	}
	mustBe(t, "dropped recorders", rt.DroppedRecorders(), uint64(1))
	finding := found.take()[0]
	mustBe(t, "kind", finding.Kind, names.FindingDroppedRecorder)
	mustBe(t, "source", finding.Source, "runtime")
	for where, text := range map[string]string{"log": log.String(), "finding": finding.String()} {
		for _, want := range []string{"forgotten kernel", "without Commit or Abort", "dropAfterPreflight"} {
			if !strings.Contains(text, want) {
				t.Errorf("the %s does not say %q: %s", where, want, text)
			}
		}
	}
}

//go:noinline
func dropWithoutPreflight(t *testing.T, b core.Block) {
	succeed(t, "read", core.NewPermissiveRecorder(1).Named("never preflighted").Read(b))
}

func TestRecorderDroppedBeforePreflightIsLogged(t *testing.T) {
	log := captureLog(t)
	rt, _, _ := fakeRuntime(t)
	dropWithoutPreflight(t, alloc(t, rt, 64))
	if !collectUntil(func() bool { return strings.Contains(log.String(), "never preflighted") }) {
		t.Errorf("nothing was logged: %q", log)
	}
}

//go:noinline
func endProperly(t *testing.T, rt *core.Runtime, b core.Block) {
	succeed(t, "commit", preflighted(t, rt, b).Commit(t.Context(), rt))
	succeed(t, "abort", preflighted(t, rt, b).Abort(t.Context(), rt))
	succeed(t, "read of nothing", core.NewStrictRecorder(1).Read(empty))
}

func TestEndedAndEmptyRecordersAreNotReported(t *testing.T) {
	log := captureLog(t)
	rt, _, found := fakeRuntime(t)
	endProperly(t, rt, alloc(t, rt, 64))
	dropAfterPreflight(t, rt, alloc(t, rt, 64)) // shows that the collector got this far
	if !collectUntil(func() bool { return rt.DroppedRecorders() > 0 && rt.Stats().OpenIntents == 0 }) {
		t.Fatal("the recorder that was dropped was not seen")
	}
	runtime.GC()
	mustBe(t, "dropped recorders", rt.DroppedRecorders(), uint64(1))
	mustBe(t, "lines logged", strings.Count(log.String(), "launch recorder"), 1)
	collectUntil(func() bool { return found.count() > 0 })
	mustBe(t, "findings", len(found.take()), 1)
}
