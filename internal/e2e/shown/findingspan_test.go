package shown_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

func TestAFindingHangsUnderTheLaunchThatDidIt(t *testing.T) {
	rt, recorder := e2e.TracedRuntime(t, fencepost.Config{Driver: e2e.Blind(t), Guard: "hunt"})
	e2e.Overrun(t, rt, "victim")
	launches, findings := e2e.SpansOf(recorder, telemetry.SpanLaunch), e2e.SpansOf(recorder, telemetry.SpanFinding)
	if len(launches) != 1 || len(findings) != 1 {
		t.Fatalf("%d launches and %d findings are traced", len(launches), len(findings))
	}
	// The guard knows the use by its launch or by its finish span; both are
	// the launch's trace.
	f := findings[0]
	parents := slices.Concat(launches, e2e.SpansOf(recorder, telemetry.SpanFinish), e2e.SpansOf(recorder, telemetry.SpanPrepare))
	if !slices.ContainsFunc(parents, func(s sdktrace.ReadOnlySpan) bool { return s.SpanContext().SpanID() == f.Parent().SpanID() }) ||
		f.SpanContext().TraceID() != launches[0].SpanContext().TraceID() {
		t.Errorf("the finding hangs under %v of trace %v", f.Parent().SpanID(), f.SpanContext().TraceID())
	}
	// Where launches are not traced, findings are not.
	rt, recorder = e2e.TracedRuntime(t, fencepost.Config{Guard: "hunt", TraceLevel: telemetry.LevelOff, Device: fencepost.Sim, Ordinal: 1})
	e2e.Overrun(t, rt, "victim")
	if n := len(recorder.Ended()); n != 0 {
		t.Errorf("%d spans with tracing off", n)
	}
}

func TestARefusedMisuseIsAnEventOfItsCall(t *testing.T) {
	rt, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: "ledger"})
	b := e2e.Allocate(t, rt, 64, core.DefaultStream, "a")
	e2e.Free(t, rt, b)
	if _, err := rt.Deallocate(t.Context(), b.ID); err == nil {
		t.Fatal("freed twice")
	}
	spans := e2e.SpansOf(recorder, telemetry.SpanDealloc)
	if len(spans) != 2 || len(spans[0].Events()) != 0 || len(spans[1].Events()) != 1 || spans[1].Events()[0].Name != string(telemetry.SpanFinding) {
		t.Errorf("the events of the two frees: %v", spans)
	}
}

// The oracle is told of launches, so its findings name them in every mode of the guard: here
// the launch has another name than its work.
func TestAFindingOfTheOracleNamesTheLaunchInItsTrace(t *testing.T) {
	for guard, known := range map[string]bool{"off": false, "ledger": true} {
		rt, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: fencepost.GuardMode(guard)})
		s := e2e.Lease(t, rt, "s")
		b := e2e.Allocate(t, rt, 4096, s.ID(), "victim")
		e2e.Succeed(t, "the launch", rt.LaunchNamed(t.Context(), "guilty", s.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
			return e2e.Memset(t.Context(), rt, b.ID.Ptr, b.Requested+64, s.Handle())
		}))
		f := e2e.Single(t, rt, names.FindingOutOfBoundsWrite)
		e2e.Names(t, f, "sim-oracle", b)
		if len(f.Suspects) != 1 {
			t.Fatalf("guard %s: %d suspects", guard, len(f.Suspects))
		}
		launches, findings := e2e.SpansOf(recorder, telemetry.SpanLaunch), e2e.SpansOf(recorder, telemetry.SpanFinding)
		if len(launches) != 1 || len(findings) != 1 {
			t.Fatalf("guard %s: %d launches and %d findings are traced", guard, len(launches), len(findings))
		}
		u, launch := f.Suspects[0], launches[0].SpanContext()
		if u.Launch != "guilty" || u.Stream != s.ID() || u.Access != core.Write || u.LaunchID == 0 ||
			u.Tags[0] != "victim" || u.Span.SpanID != launch.SpanID() {
			t.Errorf("guard %s: it suspects %+v", guard, u)
		}
		if findings[0].Parent().SpanID() != launch.SpanID() {
			t.Errorf("guard %s: the finding hangs under %v", guard, findings[0].Parent().SpanID())
		}
		if at := strings.Join(f.CallStack.Lines(), "\n"); !strings.Contains(at,
			"TestAFindingOfTheOracleNamesTheLaunchInItsTrace") {
			t.Errorf("guard %s: it was called at\n%s", guard, at)
		}
		if got := len(f.Uses) == 1 && f.Uses[0].Launch == "guilty" && f.Uses[0].LaunchID != 0; got != known || !known && len(f.Uses)+len(f.AllocStack) != 0 {
			t.Errorf("guard %s: its uses are %v, its stack %v", guard, f.Uses, f.AllocStack)
		}
		e2e.Free(t, rt, b)
	}
}
