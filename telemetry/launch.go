package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// launch is a traced launch between its prepare and its end; it is kept in
// Intent.Trace. The intent is recycled by the end, so everything that the
// spans need of it is read before the end is forwarded.
type launch struct {
	// tracing is the owner: a ticket may come from another runtime.
	tracing *tracing
	// ctx carries span; the spans of the uses are its children.
	ctx  context.Context
	span trace.Span
	// attributes are set by the end, with the outcome, in one go.
	attributes []attribute.KeyValue
	// claimed is set by the one end that may close the span.
	claimed atomic.Bool
}

// prepare forwards under a launch span and leaves that open on success.
func (r *Resource) prepare(ctx context.Context, req core.UseRequest) (core.Ticket, core.SpanRef, error) {
	req.Launch = core.BoundName(req.Launch)
	ctx, span := r.tracing.start(ctx, SpanLaunch)
	req.Span = inForce(span.SpanContext())
	recording := span.IsRecording()
	var start time.Time
	if recording {
		start = time.Now()
	}
	ticket, err := r.upstream.PrepareUse(ctx, req)
	if err == nil {
		carryContext(ctx, ticket)
	}
	if !recording {
		return ticket, core.SpanRef{}, err
	}
	l := &launch{tracing: r.tracing, ctx: ctx, span: span}
	if err != nil {
		l.refused(req, start, err)
		return ticket, spanRef(span), err
	}
	ticket.Intent().Trace = l
	l.prepared(ticket.Intent(), start)
	return ticket, spanRef(span), nil
}

// carryContext hands ctx to the launch function, so that its own spans nest
// under the launch, or stay unsampled with it. A layer below that already
// set a context derived it from ctx.
func carryContext(ctx context.Context, ticket core.Ticket) {
	if in := ticket.Intent(); in.Context == nil {
		in.Context = ctx
	}
}

func (l *launch) prepared(in *core.Intent, start time.Time) {
	l.attributes = l.tracing.launchAttributes(in)
	if l.tracing.level == LevelLaunches {
		linkWaits(l.span, in, allUses)
		return
	}
	end := trace.WithTimestamp(time.Now())
	if len(in.Uses) > MaxUseSpans {
		span := l.startChild(SpanPrepare, start)
		set(span, appendWaits(l.tracing.batchAttributes(in), in))
		linkWaits(span, in, allUses)
		span.End(end)
		return
	}
	for i := range in.Uses {
		span := l.startChild(SpanPrepare, start)
		set(span, l.tracing.prepareAttributes(in, i))
		linkWaits(span, in, i)
		span.End(end)
	}
}

// refused closes the launch of a prepare that failed. The upstream does not
// say which use it failed on, unless the error does: one span stands for all.
func (l *launch) refused(req core.UseRequest, start time.Time, err error) {
	l.attributes = l.tracing.refusedLaunchAttributes(req)
	if l.tracing.level == LevelOperations {
		span := l.startChild(SpanPrepare, start)
		set(span, l.tracing.refusedPrepareAttributes(req, err))
		l.tracing.endSpan(span, err)
	}
	l.end(OutcomeRefused, err)
}

// claim returns the launch that t ends, nil if that is not traced here. Only
// the first claim of a launch gets it.
func (r *Resource) claim(ticket core.Ticket) *launch {
	if r.tracing == nil || !ticket.IsOpen() {
		return nil
	}
	l, ok := ticket.Intent().Trace.(*launch)
	if !ok || l.tracing != r.tracing || !l.claimed.CompareAndSwap(false, true) {
		return nil
	}
	return l
}

// finish starts the finish spans before it forwards: the upstream keeps their
// references with the event that it records, and later waits link to them.
func (l *launch) finish(ctx context.Context, upstream core.Resource, ticket core.Ticket) error {
	spans := l.startFinishes(ticket.Intent(), upstream)
	err := upstream.FinishUse(under(ctx, l.span), ticket)
	end := trace.WithTimestamp(time.Now())
	for _, span := range spans {
		l.tracing.endSpan(span, err, end)
	}
	l.end(OutcomeFinished, err, end)
	return err
}

func (l *launch) startFinishes(in *core.Intent, upstream core.Resource) []trace.Span {
	if l.tracing.level == LevelLaunches {
		referAll(in, spanRef(l.span))
		return nil
	}
	start := time.Now()
	if len(in.Uses) > MaxUseSpans {
		span := l.startChild(SpanFinish, start)
		set(span, l.tracing.batchAttributes(in))
		referAll(in, spanRef(span))
		return []trace.Span{span}
	}
	spans := make([]trace.Span, len(in.Uses))
	for i := range in.Uses {
		spans[i] = l.startChild(SpanFinish, start)
		set(spans[i], l.tracing.finishAttributes(in, i, upstream.State(in.Uses[i].Block)))
		in.Uses[i].Span = spanRef(spans[i])
	}
	return spans
}

func (l *launch) abort(ctx context.Context, upstream core.Resource, ticket core.Ticket) error {
	err := upstream.AbortUse(under(ctx, l.span), ticket)
	l.end(OutcomeAborted, err)
	return err
}

func (l *launch) end(outcome string, err error, options ...trace.SpanEndOption) {
	set(l.span, append(l.attributes, AttrOutcome.String(outcome)))
	l.tracing.endSpan(l.span, err, options...)
}

// startChild starts a span of a use. All uses of a step share its start and
// its end: the upstream does them together.
//
//nolint:spancheck // the caller ends it
func (l *launch) startChild(name SpanName, start time.Time) trace.Span {
	_, span := l.tracing.tracer.Start(l.ctx, string(name), trace.WithTimestamp(start))
	return span
}

func referAll(in *core.Intent, ref core.SpanRef) {
	for i := range in.Uses {
		in.Uses[i].Span = ref
	}
}

const allUses = -1

// linkWaits links span to the spans that recorded what the use waits for.
// Work that was not traced has none to link to.
func linkWaits(span trace.Span, in *core.Intent, use int) {
	for _, w := range in.Waited {
		if (use == allUses || w.Use == use) && !w.Span.IsZero() {
			span.AddLink(trace.Link{SpanContext: spanContext(w.Span), Attributes: []attribute.KeyValue{number(AttrStream, w.Stream)}})
		}
	}
}
