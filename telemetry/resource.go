package telemetry

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
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
	path    *path.Path
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
	r.path = path.Over(upstream, false).Extend(r, share{r: r}, share{r: r}.ordinary())
	return r, nil
}

// SharedRecords are the upstream's, for the layers above: see package path.
func (r *Resource) SharedRecords() (core.Resource, *path.Records) {
	return r, r.path.Below.Shared(r.upstream)
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
	if known, err := r.path.AllocateKnown(ctx, &req, &b); known {
		return b, err
	}
	below, span, late, as := r.enter(ctx, SpanAlloc)
	if span == nil {
		if as == asIs {
			err = r.path.AllocateUnsampled(below, &req, &b)
		} else {
			err = r.path.Allocate(below, late, &req, &b)
		}
		return b, err
	}
	req.Span = spanRef(span) // so that a wait for the block's readiness can link to it
	returned := false
	defer func() {
		if !returned && b.ID.Generation != 0 { // a span processor panics, and nobody gets the block
			_, _ = r.upstream.Deallocate(context.WithoutCancel(ctx), b.ID)
		}
	}()
	if err = r.path.Allocate(below, late, &req, &b); err != nil {
		set(span, SpanAlloc, r.tracing.tagged(SpanAlloc, req.Tag), r.tracing.requestAttributes(req))
	} else {
		set(span, SpanAlloc, r.tracing.tagged(SpanAlloc, b.Tag), r.tracing.blockAttributes(b))
	}
	r.tracing.endSpan(span, err)
	returned = true
	return b, err
}

// Deallocate forwards, counts, and traces as [SpanDealloc].
func (r *Resource) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	if known, err := r.path.DeallocateKnown(ctx, &id, &b); known {
		return b, err
	}
	below, span, late, as := r.enter(ctx, SpanDealloc)
	if as == asIs {
		err = r.path.DeallocateUnsampled(below, &id, &b)
		return b, err
	}
	if err = r.path.Deallocate(below, late, &id, &b); span == nil {
		return b, err
	}
	if err != nil {
		set(span, SpanDealloc, string(SpanDealloc), r.tracing.idAttributes(id))
	} else {
		set(span, SpanDealloc, r.tracing.tagged(SpanDealloc, b.Tag), r.tracing.blockAttributes(b))
	}
	r.tracing.endSpan(span, err)
	return b, err
}

// enter is the context in which an allocation or a free goes on, with the span that it gets or, for what cannot be served at
// once, with the root that the sampler declines.
func (r *Resource) enter(ctx context.Context, name SpanName) (below context.Context, span trace.Span,
	late path.Contexts, as admission) {
	below, as = r.tracing.admit(ctx, LevelOperations, nil)
	switch {
	case as.starts():
		below, span = r.tracing.start(below, name, as)
	case as == declined:
		late = r.tracing.roots
	}
	return below, span, late, as
}

// String names the stack, such as "telemetry(budget(async(sim:0)))".
func (r *Resource) String() string { return "telemetry(" + r.upstream.String() + ")" }

// Ordinal is the upstream's device.
func (r *Resource) Ordinal() int { return r.upstream.Ordinal() }

// Features are the upstream's.
func (r *Resource) Features() core.Features { return r.upstream.Features() }

// ended counts a call that has no span of its own, and returns its error; e says what is
// known of it.
func (r *Resource) ended(ctx context.Context, start monotime.Instant, e oplog.Event) error {
	e.Duration = monotime.Now().Since(start)
	var span core.SpanRef
	if e.Err != nil {
		failed := e // only this one is put on the heap
		span = r.tracing.failed(ctx, &failed)
	}
	r.calls.Note(e.Op, e.Stream, e.Duration, span, e.Err)
	return e.Err
}

// RecordUse forwards and counts. It makes no span: the work was enqueued
// before the call.
func (r *Resource) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	start := monotime.Now()
	err := r.upstream.RecordUse(r.tracing.correlate(ctx), id, stream)
	return r.ended(ctx, start, oplog.Event{Op: oplog.OpRecord, Stream: stream, Block: id, Err: err})
}

// Reserve forwards and counts.
func (r *Resource) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	start := monotime.Now()
	claim, err := r.upstream.Reserve(r.tracing.correlate(ctx), bytes, tag)
	return claim, r.ended(ctx, start, oplog.Event{Op: oplog.OpReserve, Tag: tag, Bytes: bytes, Err: err})
}

// AnswerReserve counts a reservation that the caller answers itself, as Reserve counts one that the
// upstream answers. answer runs on this goroutine, in a context that names the caller's span. It is
// safe for concurrent use and blocks as answer does.
func (r *Resource) AnswerReserve(ctx context.Context, bytes uint64, tag core.Tag,
	answer func(context.Context) error) error {
	start := monotime.Now()
	err := answer(r.tracing.correlate(ctx))
	return r.ended(ctx, start, oplog.Event{Op: oplog.OpReserve, Tag: tag, Bytes: bytes, Err: err})
}

// ReleaseClaim forwards and counts.
func (r *Resource) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	start := monotime.Now()
	err := r.upstream.ReleaseClaim(r.tracing.correlate(ctx), id)
	return r.ended(ctx, start, oplog.Event{Op: oplog.OpReleaseClaim, Err: err})
}

// ReapPending forwards and counts.
func (r *Resource) ReapPending(ctx context.Context) error {
	start := monotime.Now()
	err := r.upstream.ReapPending(ctx)
	return r.ended(ctx, start, oplog.Event{Op: oplog.OpReap, Err: err})
}

// Drain forwards and counts. It blocks as its upstream does.
func (r *Resource) Drain(ctx context.Context) error {
	start := monotime.Now()
	err := r.upstream.Drain(ctx)
	return r.ended(ctx, start, oplog.Event{Op: oplog.OpDrain, Err: err})
}

// State is the upstream's.
func (r *Resource) State(id core.BlockID) core.BlockState { return r.upstream.State(id) }

// Stats are the upstream's.
func (r *Resource) Stats() core.Stats { return r.upstream.Stats() }

// FreedOn is the upstream's.
func (r *Resource) FreedOn(id core.StreamID) core.FreeCounters { return r.upstream.FreedOn(id) }

// Subscribe hands the listener to the upstream: releases are the same here.
func (r *Resource) Subscribe(l core.Listener) { r.upstream.Subscribe(l) }

// Unwrap is the upstream.
func (r *Resource) Unwrap() core.Resource { return r.upstream }

// Withhold forwards.
func (r *Resource) Withhold(id core.BlockID, as core.BlockState) { r.upstream.Withhold(id, as) }

// CheckLive forwards.
func (r *Resource) CheckLive(ctx context.Context) error { return r.upstream.CheckLive(ctx) }

// Inspect is the upstream's.
func (r *Resource) Inspect() core.Inspector { return r.upstream.Inspect() }

// share is the layer's share of the path: it counts calls.
type share struct {
	path.Simple
	r *Resource
}

// Path is the layer's, for the layers of this module: see package path.
func (r *Resource) Path() *path.Path { return r.path }

// calls are the counters of a lane, which is locked.
func (s share) callsOf(l *path.Lane) *metrics.LaneCalls {
	if c, ok := l.Part(s.r.path.Number()).(*metrics.LaneCalls); ok {
		return c
	}
	c := s.r.calls.OfLane(l)
	l.SetPart(s.r.path.Number(), c)
	return c
}

// ordinary is the layer's share of ordinary operations, which it counts.
func (s share) ordinary() *path.Ordinary {
	calls := func(l *path.Lane) *metrics.LaneCalls {
		return l.Part(s.r.path.Number()).(*metrics.LaneCalls)
	}
	return &path.Ordinary{
		Expects: func(l *path.Lane) int64 {
			s.callsOf(l)
			return math.MaxInt64
		},
		Allocated: func(o *path.Step) { calls(o.Lane).NoteAllocate(o.Timed, o.Took) },
		Freed:     func(o *path.Step) { calls(o.Lane).NoteDeallocate(o.Timed, o.Took) },
	}
}

// Allocate counts a call that is in no sampled trace.
func (s share) Allocate(o *path.Op) bool {
	if !s.r.path.Below.Layer.Allocate(o) {
		return false
	}
	if !o.Traced {
		s.callsOf(o.Lane).NoteAllocate(o.Timed, o.Took())
	} else {
		o.Settles(s.r.path)
	}
	return true
}

// Deallocate counts a call that is in no sampled trace.
func (s share) Deallocate(o *path.Op) bool {
	if !s.r.path.Below.Layer.Deallocate(o) {
		return false
	}
	if !o.Traced {
		s.callsOf(o.Lane).NoteDeallocate(o.Timed, o.Took())
	} else {
		o.Settles(s.r.path)
	}
	return true
}

// Settle counts a call that has failed or is in a sampled trace.
func (s share) Settle(ctx context.Context, o *path.Op, err error) error {
	if root, ok := ctx.(*declinedRoot); ok && o.Late {
		ctx = root.Context
	}
	e := oplog.Event{Op: oplog.OpAllocate, Stream: o.Request.Stream, Tag: o.Request.Tag, Requested: o.Request.Requested, Bytes: o.Request.Bytes, Err: err}
	if o.Free {
		e = oplog.Event{Op: oplog.OpDeallocate, Stream: o.ID.AllocStream, Block: o.ID, Err: err}
	}
	e.Duration = monotime.Now().Since(o.Began)
	var span core.SpanRef
	if inTracedOperation(ctx) {
		span = o.Span
	}
	if err != nil && span.IsZero() {
		span = s.r.tracing.failed(ctx, &e)
	}
	s.r.calls.Note(e.Op, e.Stream, e.Duration, span, err)
	return err
}
