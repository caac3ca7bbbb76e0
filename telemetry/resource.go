package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/quick"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// Config configures a [Resource]. The zero Config counts and does not trace.
type Config struct {
	// TracerProvider makes the spans; nil means none are made.
	TracerProvider trace.TracerProvider
	// Level says which operations become spans.
	Level Level
	// NoRoots makes spans follow requests only: an operation without a
	// parent span gets none. By default it starts a root span, subject to
	// the provider's sampler.
	NoRoots bool
	// Findings, if not nil, tells which finding an error is about: it becomes
	// an event [SpanFinding] of the span of the call that returns the error.
	Findings *Findings
}

// Resource is the outermost layer of a stack: it counts every call by its
// result, measures how long its caller waited, and traces memory operations. It is safe for concurrent use, blocks
// only where its upstream does, and changes nothing that the upstream
// answers. An operation whose parent span is unsampled allocates nothing.
//
// One ticket must not be ended by two goroutines at once: a layer has to read
// the intent before the ticket is spent.
type Resource struct {
	upstream core.Resource
	calls    metrics.Calls
	since    time.Time
	// tracing is nil if nothing is traced.
	tracing *tracing
	path    *quick.Path
}

var _ core.Resource = (*Resource)(nil)

// NewResource wraps upstream. A nil upstream or an unknown level is a
// [core.InvalidRequestError].
func NewResource(upstream core.Resource, cfg Config) (*Resource, error) {
	const op = "telemetry.NewResource"
	if upstream == nil {
		return nil, &core.InvalidRequestError{Op: op, Field: "upstream", Reason: "nil: pass the resource to observe"}
	}
	if cfg.Level > LevelOff {
		return nil, &core.InvalidRequestError{Op: op, Field: "Level", Reason: "unknown: use one of the Level constants"}
	}
	r := &Resource{upstream: upstream, since: time.Now(), tracing: cfg.tracing(upstream.Ordinal())}
	below := quick.Of(upstream)
	r.path = below.Extend(r, &quickCalls{r, below, below.NewPart()})
	return r, nil
}

// Operations is a snapshot of the calls so far. It makes no call upstream.
func (r *Resource) Operations() metrics.Operations {
	var dropped uint64
	if r.tracing != nil {
		dropped = r.tracing.events.dropped.Load()
	}
	return r.calls.Snapshot(r.since, dropped)
}

// Allocate forwards, counts, and traces as [SpanAlloc].
func (r *Resource) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	var span core.SpanRef
	ctx, traced := r.tracing.admit(ctx, LevelOperations)
	if !traced && r.path.Allocate(ctx, &req, &b) {
		return b, nil
	}
	start := monotime.Now()
	if traced {
		b, span, err = r.allocate(ctx, req)
	} else {
		b, err = r.upstream.Allocate(ctx, req)
	}
	took := monotime.Now().Since(start)
	if err != nil && span.IsZero() {
		span = r.tracing.failed(ctx, &core.Event{Op: core.OpAllocate, Stream: req.Stream, Tag: req.Tag, Requested: req.Requested, Bytes: req.Bytes, Duration: took, Err: err})
	}
	r.calls.Note(core.OpAllocate, req.Stream, took, span, err)
	return b, err
}

// Deallocate forwards, counts, and traces as [SpanDealloc].
func (r *Resource) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	var span core.SpanRef
	ctx, traced := r.tracing.admit(ctx, LevelOperations)
	if !traced && r.path.Deallocate(ctx, &id, &b) {
		return b, nil
	}
	start := monotime.Now()
	if traced {
		b, span, err = r.deallocate(ctx, id)
	} else {
		b, err = r.upstream.Deallocate(ctx, id)
	}
	took := monotime.Now().Since(start)
	if err != nil && span.IsZero() {
		span = r.tracing.failed(ctx, &core.Event{Op: core.OpDeallocate, Stream: id.AllocStream, Block: id, Duration: took, Err: err})
	}
	r.calls.Note(core.OpDeallocate, id.AllocStream, took, span, err)
	return b, err
}

// allocate, deallocate and prepare return the span of the call too, none if
// it is not sampled.

// allocate tells the upstream the span before it forwards, so that a wait for
// the block's readiness can link to it.
func (r *Resource) allocate(ctx context.Context, req core.Request) (core.Block, core.SpanRef, error) {
	ctx, span := r.tracing.start(ctx, SpanAlloc)
	if !span.IsRecording() {
		b, err := r.upstream.Allocate(ctx, req)
		return b, core.SpanRef{}, err
	}
	req.Span = spanRef(span)
	b, err := r.upstream.Allocate(ctx, req)
	if err != nil {
		set(span, r.tracing.requestAttributes(req))
	} else {
		set(span, r.tracing.blockAttributes(b))
	}
	r.tracing.endSpan(span, err)
	return b, spanRef(span), err
}

func (r *Resource) deallocate(ctx context.Context, id core.BlockID) (core.Block, core.SpanRef, error) {
	ctx, span := r.tracing.start(ctx, SpanDealloc)
	b, err := r.upstream.Deallocate(ctx, id)
	if !span.IsRecording() {
		return b, core.SpanRef{}, err
	}
	if err != nil {
		set(span, r.tracing.idAttributes(id))
	} else {
		set(span, r.tracing.blockAttributes(b))
	}
	r.tracing.endSpan(span, err)
	return b, spanRef(span), err
}

// PrepareUse forwards, counts, and opens a [SpanLaunch] with a [SpanPrepare]
// for each block.
func (r *Resource) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	var t core.Ticket
	var span core.SpanRef
	var err error
	start := monotime.Now()
	ctx, traced := r.tracing.admitLaunch(ctx, &req)
	if traced {
		t, span, err = r.prepare(ctx, req)
	} else {
		t, err = r.upstream.PrepareUse(ctx, req)
	}
	took := monotime.Now().Since(start)
	if err != nil && span.IsZero() {
		span = r.tracing.failed(ctx, &core.Event{Op: core.OpPrepare, Stream: req.Stream, Launch: req.Launch, Duration: took, Err: err})
	}
	r.calls.Note(core.OpPrepare, req.Stream, took, span, err)
	return t, err
}

// FinishUse forwards, counts, and closes the launch's span with a
// [SpanFinish] for each block. The launch decides whether that is traced,
// not ctx.
func (r *Resource) FinishUse(ctx context.Context, t core.Ticket) error {
	var span core.SpanRef
	var err error
	stream := streamOf(t)
	start := monotime.Now()
	if launch := r.claim(t); launch != nil {
		span = spanRef(launch.span)
		err = launch.finish(ctx, r.upstream, t)
	} else {
		err = r.upstream.FinishUse(ctx, t)
	}
	took := monotime.Now().Since(start)
	if err != nil && span.IsZero() {
		span = r.tracing.failed(ctx, &core.Event{Op: core.OpFinish, Duration: took, Err: err})
	}
	r.calls.Note(core.OpFinish, stream, took, span, err)
	return err
}

// streamOf is the stream of a launch that is to be ended, while its intent can be read.
func streamOf(t core.Ticket) core.StreamID {
	if !t.IsOpen() {
		return core.DefaultStream
	}
	return t.Intent().Stream
}

// AbortUse forwards, counts, and closes the launch's span as aborted.
func (r *Resource) AbortUse(ctx context.Context, t core.Ticket) error {
	var span core.SpanRef
	var err error
	stream := streamOf(t)
	start := monotime.Now()
	if launch := r.claim(t); launch != nil {
		span = spanRef(launch.span)
		err = launch.abort(ctx, r.upstream, t)
	} else {
		err = r.upstream.AbortUse(ctx, t)
	}
	took := monotime.Now().Since(start)
	if err != nil && span.IsZero() {
		span = r.tracing.failed(ctx, &core.Event{Op: core.OpAbort, Duration: took, Err: err})
	}
	r.calls.Note(core.OpAbort, stream, took, span, err)
	return err
}
