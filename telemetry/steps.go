package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// Steps makes a [SpanCopy] of each copy and a [SpanWait] of each wait in a sampled
// trace: what a request spends its time with beside the operations of a
// [Resource]. It begins no trace of its own. Give it to cuda.StreamPoolConfig.
type Steps struct {
	tracing *tracing // nil if nothing is traced
}

var _ core.StepTracer = (*Steps)(nil)

// NewSteps returns the steps of the device of that ordinal, traced as cfg says:
// copies at [LevelOperations], waits at [LevelLaunches] too.
func NewSteps(cfg Config, ordinal int) *Steps { return &Steps{newTracing(cfg, ordinal)} }

// BeginStep starts the step's span if ctx's trace is sampled; otherwise it looks
// at the context and that is all.
func (s *Steps) BeginStep(ctx context.Context, step core.Step) core.StepSpan {
	name, last := SpanWait, LevelLaunches
	if step.Kind == core.StepCopy {
		name, last = SpanCopy, LevelOperations
	}
	if s.tracing == nil || s.tracing.level > last || !trace.SpanContextFromContext(ctx).IsSampled() {
		return nil
	}
	_, span := s.tracing.tracer.Start(ctx, string(name))
	if !span.IsRecording() {
		return nil
	}
	set(span, s.attributes(&step))
	return stepSpan{span}
}

func (s *Steps) attributes(step *core.Step) []attribute.KeyValue {
	attrs := append(scratch(), s.tracing.device, number(AttrStream, step.Stream))
	if step.Kind == core.StepCopy {
		return append(attrs, AttrCopyDirection.String(step.Direction), number(AttrCopyBytes, step.Bytes))
	}
	return append(attrs, AttrWaitFor.String(WaitForStream))
}

type stepSpan struct{ span trace.Span }

func (s stepSpan) End(err error) {
	if err != nil {
		s.span.SetAttributes(AttrErrorType.String(ErrorType(err)))
		fail(s.span, err.Error())
	}
	s.span.End()
}
