package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// Steps returns what makes a [SpanCopy] of each copy and a [SpanWait] of each wait in
// a sampled trace of the device of that ordinal: what a request spends its time with
// beside the operations of a [Resource]. It begins no trace of its own. cfg says what
// is traced: copies at [LevelOperations], waits at [LevelLaunches] too. Give it to
// cuda.StreamPoolConfig.
func Steps(cfg Config, ordinal int) core.StepFunc {
	return cfg.tracing(ordinal).beginStep
}

// beginStep starts the step's span if ctx's trace is sampled; otherwise it looks
// at the context and that is all.
func (t *tracing) beginStep(ctx context.Context, step core.Step) func(error) {
	name, last := SpanWait, LevelLaunches
	if step.Direction != "" {
		name, last = SpanCopy, LevelOperations
	}
	if t == nil || t.level > last || !trace.SpanContextFromContext(ctx).IsSampled() {
		return nil
	}
	_, span := t.tracer.Start(ctx, string(name))
	if !span.IsRecording() {
		return nil
	}
	set(span, t.stepSpanAttributes(&step))
	return func(err error) { end(span, err) }
}

func (t *tracing) stepSpanAttributes(step *core.Step) []attribute.KeyValue {
	attrs := append(scratch(), t.device, number(AttrStream, step.Stream))
	if step.Direction != "" {
		return append(attrs, AttrCopyDirection.String(step.Direction), number(AttrCopyBytes, step.Bytes))
	}
	return append(attrs, AttrWaitFor.String(WaitForStream))
}
