package telemetry

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// failed is the span in the caller's trace of a call that failed and has no span of
// its own: one that was made of the same error before, or a new one. It is zero if
// nothing was exported. e says what is known of the call.
//
// In a trace that is not sampled the span is started as if its parent were sampled:
// the SDK's ParentBased samplers then sample it. Other samplers may still decline.
func (t *tracing) failed(ctx context.Context, e *core.Event) core.SpanRef {
	if t == nil || t.level == LevelOff {
		return core.SpanRef{}
	}
	parent := trace.SpanContextFromContext(ctx)
	switch {
	case !parent.IsValid():
		return core.SpanRef{}
	case parent.IsSampled():
		return t.failureSpan(ctx, e, core.TraceFull)
	}
	if span := t.events.about(parent.TraceID(), e.Err); !span.IsZero() {
		return span
	}
	if !t.events.admit(time.Now()) {
		return core.SpanRef{}
	}
	span := t.failureSpan(trace.ContextWithSpanContext(ctx, parent.WithTraceFlags(parent.TraceFlags().WithSampled(true))), e, core.TraceEvent)
	t.events.remember(span, e.Err)
	return span
}

func (t *tracing) failureSpan(ctx context.Context, e *core.Event, extent string) core.SpanRef {
	end := time.Now()
	name, attributes := SpanFailure, t.failureAttributes
	short, refused := errors.AsType[*core.OutOfBudgetError](e.Err)
	if refused {
		name, attributes = SpanRefusal, func(e *core.Event) []attribute.KeyValue { return t.refusalAttributes(e, short) }
	}
	_, span := t.tracer.Start(ctx, string(name), trace.WithTimestamp(end.Add(-e.Duration)))
	if span.IsRecording() {
		set(span, append(attributes(e), AttrTrace.String(extent), AttrErrorType.String(ErrorType(e.Err))))
		noteFinding(t.findings, span, e.Err)
		fail(span, e.Err.Error())
	}
	span.End(trace.WithTimestamp(end))
	return spanRef(span)
}

func (t *tracing) refusalAttributes(e *core.Event, short *core.OutOfBudgetError) []attribute.KeyValue {
	attrs := append(scratch(), t.device, text(AttrTag, string(e.Tag.OrUntagged())), number(AttrRequested, cmp.Or(e.Requested, e.Bytes)),
		number(AttrLimit, short.Limit), number(AttrRemaining, short.Remaining))
	if len(short.Holders) > 0 {
		attrs = append(attrs, AttrHolders.StringSlice(holderTexts(short.Holders)))
	}
	return attrs
}

func holderTexts(holders []core.Holder) []string {
	texts := make([]string, len(holders))
	for i, h := range holders {
		texts[i] = text("", h.String()).Value.AsString()
	}
	return texts
}

// failureAttributes are what is known of the call: not all calls name a stream, a
// block or bytes.
func (t *tracing) failureAttributes(e *core.Event) []attribute.KeyValue {
	attrs := append(scratch(), t.device, AttrOperation.String(e.Op.String()))
	switch e.Op {
	case core.OpAllocate:
		return append(attrs, number(AttrStream, e.Stream), text(AttrTag, string(e.Tag.OrUntagged())), number(AttrRequested, cmp.Or(e.Requested, e.Bytes)))
	case core.OpReserve:
		return append(attrs, text(AttrTag, string(e.Tag.OrUntagged())), number(AttrRequested, cmp.Or(e.Requested, e.Bytes)))
	case core.OpDeallocate, core.OpRecord:
		return append(attrs, number(AttrStream, e.Stream), number(AttrGeneration, e.Block.Generation))
	case core.OpPrepare:
		return appendCulprit(appendLaunch(append(attrs, number(AttrStream, e.Stream)), core.BoundName(e.Launch)), e.Err)
	}
	return attrs
}

// Refused returns the exported span of a refusal in ctx's trace, and makes it if
// there is none yet: a [SpanRefusal], also where that trace is not sampled. It is zero where nothing is exported: without a trace, a provider, or
// beyond [MaxEventSpans]. alone reports whether the trace is not sampled. A layer
// that logs a refusal asks it first; see [core.EventSink]. e must have an
// error. It does not block, unless the provider's processors do.
func (r *Resource) Refused(ctx context.Context, e core.Event) (span core.SpanRef, alone bool) {
	span = r.tracing.failed(ctx, &e)
	return span, !span.IsZero() && !trace.SpanContextFromContext(ctx).IsSampled()
}

// TraceOf returns the exported span that a log record should name to lead into
// ctx's trace, and how much of that was exported: ctx's own span and
// [core.TraceFull] if it is sampled, or else the newest span of a refusal, a
// failure or a finding in that trace, among the last few, and [core.TraceEvent]. It is zero
// and empty if nothing was exported.
func (r *Resource) TraceOf(ctx context.Context) (span core.SpanRef, extent string) {
	sc := trace.SpanContextFromContext(ctx)
	if sc.IsSampled() {
		return refTo(sc), core.TraceFull
	}
	if r.tracing == nil || !sc.IsValid() {
		return core.SpanRef{}, ""
	}
	if span = r.tracing.events.about(sc.TraceID(), nil); span.IsZero() {
		return span, ""
	}
	return span, core.TraceEvent
}
