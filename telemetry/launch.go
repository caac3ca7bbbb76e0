package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
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
	// name is the launch's own. attributes are set by the end, with the outcome, in one go.
	name       string
	attributes []attribute.KeyValue
	// claimed is set by the one end that may close the span.
	claimed atomic.Bool
}

// PrepareUse forwards, counts, and opens a [SpanLaunch] with a [SpanPrepare]
// for each block. A launch without a span brings its caller's, so that what is found
// later can be told there. Of the launches that are not traced, fail or have waited for another launch, one in
// 16 on a stream is timed and stands for the others.
func (r *Resource) PrepareUse(ctx context.Context, req core.UseRequest) (t core.Ticket, err error) {
	req.Began = monotime.Now()
	below, as := r.tracing.admit(ctx, LevelLaunches, &req.Span)
	switch {
	case as.starts():
		var span core.SpanRef
		if t, span, err = r.prepare(below, req, as); err != nil {
			return t, r.prepareFailed(ctx, &req, span, err)
		}
		r.calls.Note(oplog.OpPrepare, req.Stream, monotime.Now().Since(req.Began), span, nil)
		return t, nil
	case as == declined:
		root := r.tracing.roots.decline(ctx)
		req.Span = root.ref()
		if t, err = r.upstream.PrepareUse(root, req); err == nil {
			t.Intent().Trace = root
			enclose(root, t)
		}
	default:
		t, err = r.upstream.PrepareUse(below, req)
	}
	if err != nil {
		return t, r.prepareFailed(ctx, &req, core.SpanRef{}, err)
	}
	if t.Intent().Blocked {
		r.calls.Note(oplog.OpPrepare, req.Stream, monotime.Now().Since(req.Began), core.SpanRef{}, nil)
	} else if !r.calls.Skip(oplog.OpPrepare, req.Stream) {
		r.calls.NoteSample(oplog.OpPrepare, req.Stream, monotime.Now().Since(req.Began), core.SpanRef{}, nil)
	}
	return t, nil
}

func (r *Resource) prepareFailed(ctx context.Context, req *core.UseRequest, span core.SpanRef, err error) error {
	took := monotime.Now().Since(req.Began)
	if span.IsZero() {
		span = r.tracing.failed(ctx, &oplog.Event{Op: oplog.OpPrepare, Stream: req.Stream, Launch: req.Launch, Duration: took, Err: err})
	}
	r.calls.Note(oplog.OpPrepare, req.Stream, took, span, err)
	return err
}

// FinishUse forwards, counts, and closes the launch's span with a
// [SpanFinish] for each block. The launch decides whether that is traced,
// not ctx. It is timed as PrepareUse is; one that fails and is not timed counts as its stream's last.
func (r *Resource) FinishUse(ctx context.Context, t core.Ticket) error {
	return r.endUse(ctx, t, oplog.OpFinish)
}

// AbortUse forwards, counts, and closes the launch's span as aborted.
func (r *Resource) AbortUse(ctx context.Context, t core.Ticket) error {
	return r.endUse(ctx, t, oplog.OpAbort)
}

func (r *Resource) endUse(ctx context.Context, t core.Ticket, op oplog.Op) (err error) {
	var traced *launch
	var root *declinedRoot
	stream := core.DefaultStream
	if t.IsOpen() {
		in := t.Intent()
		stream = in.Stream // nothing of it can be read afterwards
		if r.tracing != nil && in.Trace != nil {
			traced = r.claim(in)
			root, _ = in.Trace.(*declinedRoot)
			if root != nil && root.of != r.tracing.roots {
				root = nil // of another layer
			}
		}
	}
	var start monotime.Instant
	skipped := traced == nil && r.calls.Skip(op, stream)
	if !skipped {
		start = monotime.Now()
	}
	switch {
	case traced != nil:
		err = traced.finish(ctx, r.upstream, t, op)
	case op == oplog.OpFinish:
		err = r.upstream.FinishUse(ctx, t)
	default:
		err = r.upstream.AbortUse(ctx, t)
	}
	if err == nil && root != nil {
		root.done()
	}
	if skipped && err == nil {
		return nil
	}
	var took time.Duration
	if !skipped {
		took = monotime.Now().Since(start)
	}
	var span core.SpanRef
	switch {
	case traced != nil:
		span = spanRef(traced.span)
	case err != nil:
		span = r.tracing.failed(ctx, &oplog.Event{Op: op, Duration: took, Err: err})
	}
	switch {
	case skipped:
		r.calls.NoteEnd(op, took, span, err)
	case traced != nil:
		r.calls.Note(op, stream, took, span, err)
	default:
		r.calls.NoteSample(op, stream, took, span, err)
	}
	return err
}

// prepare forwards under a launch span and leaves that open on success.
func (r *Resource) prepare(ctx context.Context, req core.UseRequest, as admission) (ticket core.Ticket, _ core.SpanRef, err error) {
	req.Launch = names.Bound(req.Launch)
	ctx, span := r.tracing.start(ctx, SpanLaunch, as)
	req.Span = SpanIn(ctx)
	var start time.Time
	if span != nil {
		start = time.Now()
	}
	returned := false
	defer func() {
		if !returned && ticket.IsOpen() { // a span processor panics, and nobody gets the ticket
			_ = r.upstream.AbortUse(ctx, ticket)
		}
	}()
	ticket, err = r.upstream.PrepareUse(ctx, req)
	if err == nil {
		enclose(ctx, ticket)
	}
	if span == nil {
		returned = true
		return ticket, core.SpanRef{}, err
	}
	l := &launch{tracing: r.tracing, ctx: ctx, span: span, name: req.Launch}
	if err != nil {
		l.refused(req, start, err)
		return ticket, spanRef(span), err
	}
	ticket.Intent().Trace = l
	l.prepared(ticket.Intent(), start)
	ref := spanRef(span)
	returned = true
	return ticket, ref, nil
}

// enclose makes ctx that of the launch function, whose own spans nest under the launch, or stay
// unsampled with it, unless a layer below derived one from it.
func enclose(ctx context.Context, ticket core.Ticket) {
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
	l.eachStep(SpanPrepare, start, in, func(span trace.Span, use int) {
		l.set(span, SpanPrepare, l.tracing.prepareAttributes(in, use))
		linkWaits(span, in, use)
		span.End(end)
	})
}

// allUses stands for all uses of a launch where a number stands for one.
const allUses = -1

// eachStep starts a span of each use and calls do with it, or one span of all uses where
// there are too many. They share their start and their end: the upstream does them
// together.
func (l *launch) eachStep(name SpanName, start time.Time, in *core.Intent, do func(span trace.Span, use int)) {
	first, last := 0, len(in.Uses)-1
	if len(in.Uses) > MaxUseSpans {
		first, last = allUses, allUses
	}
	for use := first; use <= last; use++ {
		do(l.startChild(name, start), use)
	}
}

//nolint:spancheck // the caller ends it
func (l *launch) startChild(name SpanName, start time.Time) trace.Span {
	_, span := l.tracing.tracer.Start(l.ctx, string(name), trace.WithTimestamp(start))
	return span
}

// refused closes the launch of a prepare that failed. The upstream does not
// say which use it failed on, unless the error does: one span stands for all.
func (l *launch) refused(req core.UseRequest, start time.Time, err error) {
	l.attributes = append(l.tracing.stepAttributes(req.Stream, req.Launch), AttrLaunchUses.Int(len(req.Uses)))
	if l.tracing.level == LevelOperations {
		span := l.startChild(SpanPrepare, start)
		l.set(span, SpanPrepare, l.tracing.refusedPrepareAttributes(req, err))
		l.tracing.endSpan(span, err)
	}
	l.end(OutcomeRefused, err)
}

// claim returns the launch of an open intent, nil if that is not traced here. Only
// the first claim of a launch gets it.
func (r *Resource) claim(in *core.Intent) *launch {
	l, ok := in.Trace.(*launch)
	if !ok || l.tracing != r.tracing || !l.claimed.CompareAndSwap(false, true) {
		return nil
	}
	return l
}

// finish forwards the end of the launch, which op says. It starts the finish spans before:
// the upstream keeps their references with the event that it records, and later waits
// link to them.
func (l *launch) finish(ctx context.Context, upstream core.Resource, ticket core.Ticket, op oplog.Op) error {
	end := upstream.FinishUse
	if op == oplog.OpAbort {
		end = upstream.AbortUse
	}
	started := false
	defer func() {
		if !started { // a span ends the goroutine: the intent ends all the same
			_ = end(ctx, ticket)
		}
	}()
	ctx = under(ctx, l.span)
	if op == oplog.OpAbort {
		started = true
		err := end(ctx, ticket)
		l.end(OutcomeAborted, err)
		return err
	}
	spans := l.startFinishes(ticket.Intent(), upstream)
	started = true
	err := end(ctx, ticket)
	now := trace.WithTimestamp(time.Now())
	for _, span := range spans {
		l.tracing.endSpan(span, err, now)
	}
	l.end(OutcomeFinished, err, now)
	return err
}

func (l *launch) startFinishes(in *core.Intent, upstream core.Resource) []trace.Span {
	if l.tracing.level == LevelLaunches {
		refer(in, allUses, spanRef(l.span))
		return nil
	}
	spans := make([]trace.Span, 0, len(in.Uses))
	l.eachStep(SpanFinish, time.Now(), in, func(span trace.Span, use int) {
		attrs := l.tracing.useAttributes(in, use)
		if use != allUses {
			attrs = append(attrs, AttrState.String(upstream.State(in.Uses[use].Block).String()))
		}
		l.set(span, SpanFinish, attrs)
		refer(in, use, spanRef(span))
		spans = append(spans, span)
	})
	return spans
}

// refer says which span later waits for a use link to.
func refer(in *core.Intent, use int, ref core.SpanRef) {
	for i := range in.Uses {
		if use == allUses || use == i {
			in.Uses[i].Span = ref
		}
	}
}

func (l *launch) end(outcome string, err error, options ...trace.SpanEndOption) {
	l.set(l.span, SpanLaunch, append(l.attributes, AttrOutcome.String(outcome)))
	l.tracing.endSpan(l.span, err, options...)
}

// set gives span, of the launch or of a step of it, its name and attributes.
func (l *launch) set(span trace.Span, operation SpanName, attributes []attribute.KeyValue) {
	set(span, operation, l.tracing.launches.name(operation, l.name), attributes)
}

// linkWaits links span to the spans that recorded what the use waits for.
// Work that was not traced has none to link to.
func linkWaits(span trace.Span, in *core.Intent, use int) {
	for _, w := range in.Waited {
		if (use == allUses || w.Use == use) && !w.Span.IsZero() {
			span.AddLink(trace.Link{SpanContext: spanContext(w.Span), Attributes: []attribute.KeyValue{number(AttrStream, w.Stream)}})
		}
	}
}
