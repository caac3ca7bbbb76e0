package telemetry_test

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

var (
	copyStep = core.Step{Stream: 3, Direction: "to_host", Bytes: 64}
	waitStep = core.Step{Stream: 3}
)

func newSteps(level telemetry.Level) (core.StepFunc, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	return telemetry.Steps(telemetry.Config{TracerProvider: provider, Level: level}, 2), recorder
}

func TestStepsOfASampledTraceAreSpans(t *testing.T) {
	for level, want := range map[telemetry.Level][]string{
		telemetry.LevelOperations: {
			"copy/1 in caller cuda.device.index=2 stream.id=3 copy.direction=to_host copy.bytes=64",
			"wait/1 in caller cuda.device.index=2 stream.id=3 wait.for=stream error.type=canceled Error(context canceled)",
		},
		telemetry.LevelLaunches: {"wait/1 in caller cuda.device.index=2 stream.id=3 wait.for=stream error.type=canceled Error(context canceled)"},
		telemetry.LevelOff:      nil,
	} {
		steps, recorder := newSteps(level)
		ctx := traced{}.request(t)
		if end := steps(ctx, copyStep); end != nil {
			end(nil)
		}
		if end := steps(ctx, waitStep); end != nil {
			end(context.Canceled)
		}
		traced{recorder: recorder}.wantSpans(t, want...)
	}
}

// Nor does a wait begin a trace of its own.
func TestStepsThatAreNotSampledCostNothing(t *testing.T) {
	steps, recorder := newSteps(telemetry.LevelOperations)
	none := telemetry.Steps(telemetry.Config{}, 0)
	for name, ctx := range map[string]context.Context{"unsampled": unsampled(t.Context()), "no trace": t.Context()} {
		if n := testing.AllocsPerRun(100, func() {
			if steps(ctx, copyStep) != nil || steps(ctx, waitStep) != nil || none(ctx, waitStep) != nil {
				t.Fatalf("%s: a step is traced", name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if len(recorder.Started()) != 0 || none(traced{}.request(t), waitStep) != nil {
		t.Errorf("spans %v", recorder.Started())
	}
}
