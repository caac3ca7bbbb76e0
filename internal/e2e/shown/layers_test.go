package shown_test

import (
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// layersUnder renders the layers below a span, in the order of their ends.
func layersUnder(spans []sdktrace.ReadOnlySpan, parent trace.SpanID) string {
	var below []string
	for _, s := range spans {
		if e2e.IsOf(s, telemetry.SpanLayer) && s.Parent().SpanID() == parent {
			values := attribute.NewSet(s.Attributes()...)
			name, _ := values.Value(telemetry.AttrLayer)
			op, _ := values.Value(telemetry.AttrOperation)
			below = append(below, fmt.Sprintf("%s.%s(%s)", name.AsString(), op.AsString(), layersUnder(spans, s.SpanContext().SpanID())))
		}
	}
	return strings.Join(below, " ")
}

// An allocation that two layers had to cure shows what each of them did: the
// budget reaped and was short all the same, the guard gave up quarantine.
func TestASlowAllocationShowsItsLayers(t *testing.T) {
	rt, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: "hunt", GuardConfig: debugguard.Config{QuarantineBytes: 4 << 20}, Budget: 4 << 20, TraceLayers: true})
	if got, want := rt.String(), "telemetry(probe(debugguard(probe(budget(probe(logging(probe("; !strings.HasPrefix(got, want) {
		t.Errorf("the stack is %s, want %s...", got, want)
	}
	e2e.Free(t, rt, e2e.Allocate(t, rt, 3<<20, core.DefaultStream, "a"))
	recorder.Reset()
	e2e.Free(t, rt, e2e.Allocate(t, rt, 3<<20, core.DefaultStream, "b"))
	alloc := e2e.SpansOf(recorder, telemetry.SpanAlloc)[0]
	got := layersUnder(recorder.Ended(), alloc.SpanContext().SpanID())
	below := func(ops ...string) string {
		var calls []string
		for _, op := range ops {
			calls = append(calls, fmt.Sprintf("budget.%[1]s(log.%[1]s(driver.%[1]s()))", op))
		}
		return strings.Join(calls, " ")
	}
	// A look at the device, checks of the quarantined block, its free, another look, the block, and its red zones.
	whole := "guard.allocate(budget.allocate(" + below("reap", "prepare", "finish", "deallocate", "reap") +
		" log.allocate(driver.allocate())) " + below("prepare", "finish") + ")"
	if got != whole {
		t.Errorf("the allocation's layers:\n%s\nwant\n%s", got, whole)
	}
}

func TestLayersAreBuiltOnlyWhereTheyAreAskedForAndTraced(t *testing.T) {
	const plain = "telemetry(debugguard(budget(logging("
	for name, cfg := range map[string]fencepost.Config{
		"not asked for": {TracerProvider: sdktrace.NewTracerProvider()},
		"no provider":   {TraceLayers: true},
		"tracing off":   {TraceLayers: true, TracerProvider: sdktrace.NewTracerProvider(), TraceLevel: telemetry.LevelOff},
	} {
		if got := e2e.Open(t, cfg).String(); !strings.HasPrefix(got, plain) || strings.Contains(got, "probe") {
			t.Errorf("%s: the stack is %s", name, got)
		}
	}
}
