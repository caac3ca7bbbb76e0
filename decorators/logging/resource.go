package logging

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Resource is a [core.Resource] that forwards every call to its upstream,
// once, and logs what came of it. It is also a [oplog.Sink], through
// which other layers (a budget that refuses) put their own events into the
// same log. It is safe for concurrent use, holds no lock and keeps no state
// about blocks.
type Resource struct {
	_        [64]byte
	upstream core.Resource
	ordinal  int
	ops      opSet
	rings    []*Ring
	sinks    []Sink // all the others
	sequence *sequence
	path     *path.Path
	_        [64]byte // what every operation reads shares no cache line with what is written
	// equipping is held by who gives a lane stripes.
	equipping atomic.Bool
}

var _ core.Resource = (*Resource)(nil)
var _ oplog.Sink = (*Resource)(nil)
var _ oplog.DeviceWorkSink = (*Resource)(nil)

// Emit logs an event of another layer as it is, if the level logs its
// operation. It does not block.
func (r *Resource) Emit(_ context.Context, e oplog.Event) {
	if r.ops.has(e.Op) {
		rec := Record{Event: e, Seq: r.sequence.next()}
		r.deliver(&rec)
	}
}

// Done logs what the device did of a launch, at the level [Uses]. A ring does not get it: a history lists what is in memory of that beside
// the ring's records. With Lost it makes the layer an [oplog.DeviceWorkSink].
func (r *Resource) Done(w *oplog.DeviceWork) {
	if len(r.sinks) > 0 && r.ops.has(oplog.OpDevice) {
		r.Tell(w.Event(r.ordinal))
	}
}

// HasSinks reports whether there is any sink but rings.
func (r *Resource) HasSinks() bool { return len(r.sinks) > 0 }

// Tell logs an event of what a history lists beside the ring's records: a ring does not get it.
func (r *Resource) Tell(e oplog.Event) {
	if !r.ops.has(e.Op) {
		return
	}
	rec := Record{Event: e, Seq: r.sequence.next()}
	r.putAll(&rec)
}

// putAll is the one place that calls the sinks with records.
func (r *Resource) putAll(rec *Record) {
	if len(r.sinks) > 0 {
		usercode.All(r.sinks, func(s Sink) { usercode.Call(sinkCode, func() { s.Put(*rec) }) })
	}
}

const sinkCode = "a log sink"

// Lost logs nothing.
func (*Resource) Lost(int) {}

// Dropped is the number of records that the sinks lost because a queue was
// full, a writer failed or the sink was closed.
func (r *Resource) Dropped() (n uint64) {
	for _, s := range r.sinks { // a ring loses none
		usercode.Call(sinkCode, func() { n += s.Dropped() })
	}
	return n
}

// Allocate forwards, and logs the block or the failed request.
func (r *Resource) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	err = r.path.Allocate(ctx, nil, &req, &b)
	return b, err
}

// Deallocate forwards, and logs the block that was given back. The sequence
// number is taken before the upstream is asked: from then on another
// goroutine may be handed the same address, and its record must come later.
func (r *Resource) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	err = r.path.Deallocate(ctx, nil, &id, &b)
	return b, err
}

// Reserve forwards, and logs the bytes and the tag.
func (r *Resource) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (claim core.Claim, err error) {
	if !r.ops.has(oplog.OpReserve) {
		return r.upstream.Reserve(ctx, bytes, tag)
	}
	returned := false
	defer func() {
		if !returned && claim.ID != 0 { // a sink panics, so the claim has no owner
			_ = r.upstream.ReleaseClaim(context.WithoutCancel(ctx), claim.ID)
		}
	}()
	start := monotime.Now()
	claim, err = r.upstream.Reserve(ctx, bytes, tag)
	took := monotime.Now().Since(start)
	rec := Record{Event: oplog.Event{Tag: tag.OrUntagged(), Requested: bytes, Bytes: bytes}}
	err = r.put(ctx, &rec, oplog.OpReserve, start, took, err)
	returned = true
	return claim, err
}

// ReleaseClaim forwards, and logs that it happened.
func (r *Resource) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	return r.logged(ctx, oplog.OpReleaseClaim, func() error { return r.upstream.ReleaseClaim(ctx, id) })
}

// ReapPending forwards, and logs that it happened.
func (r *Resource) ReapPending(ctx context.Context) error {
	return r.logged(ctx, oplog.OpReap, func() error { return r.upstream.ReapPending(ctx) })
}

// Drain forwards, and logs that it happened. It blocks as long as the
// upstream does.
func (r *Resource) Drain(ctx context.Context) error {
	return r.logged(ctx, oplog.OpDrain, func() error { return r.upstream.Drain(ctx) })
}

// logged makes a call of which nothing more is told than that it happened.
func (r *Resource) logged(ctx context.Context, op oplog.Op, call func() error) error {
	if !r.ops.has(op) {
		return call()
	}
	start := monotime.Now()
	err := call()
	return r.put(ctx, &Record{}, op, start, monotime.Now().Since(start), err)
}

// put completes rec, delivers it and returns err.
func (r *Resource) put(ctx context.Context, rec *Record, op oplog.Op, start monotime.Instant, took time.Duration, err error) error {
	rec.Event.Time, rec.Event.Duration = start.Time(), took
	rec.Event.Op, rec.Event.Layer, rec.Event.Ordinal, rec.Event.Err = op, layerName, r.ordinal, legible.Kept(err)
	rec.Event.Span = core.SpanOf(ctx)
	if rec.Seq == 0 {
		rec.Seq = r.sequence.next()
	}
	r.deliver(rec)
	return err
}

// deliver hands rec to every sink.
func (r *Resource) deliver(rec *Record) {
	for _, ring := range r.rings {
		ring.keep(rec)
	}
	r.putAll(rec)
}

// describe fills in what is known of an existing block.
func (rec *Record) describe(b *core.Block) {
	rec.Event.Block, rec.Event.Tag = b.ID, b.Tag
	rec.Event.Requested, rec.Event.Bytes = b.Requested, b.Bytes
}

// describeFailed fills in what was asked for when no block came of it.
func (rec *Record) describeFailed(req *core.Request) {
	rec.Event.Tag = req.Tag.OrUntagged()
	rec.Event.Requested, rec.Event.Bytes = cmp.Or(req.Requested, req.Bytes), req.Bytes
}

// The calls below change nothing and are not logged.

// String is "logging(upstream)".
func (r *Resource) String() string { return layerName + "(" + r.upstream.String() + ")" }

// Ordinal is the upstream's device.
func (r *Resource) Ordinal() int { return r.upstream.Ordinal() }

// Features is what the upstream can do: this layer narrows nothing.
func (r *Resource) Features() core.Features { return r.upstream.Features() }

// State is the upstream's answer.
func (r *Resource) State(id core.BlockID) core.BlockState { return r.upstream.State(id) }

// Stats is the upstream's answer. What the log itself lost is
// [Resource.Dropped].
func (r *Resource) Stats() core.Stats { return r.upstream.Stats() }

// FreedOn is the upstream's answer.
func (r *Resource) FreedOn(id core.StreamID) core.FreeCounters { return r.upstream.FreedOn(id) }

// Subscribe subscribes to the upstream, whose blocks are this layer's.
func (r *Resource) Subscribe(l core.Listener) { r.upstream.Subscribe(l) }

// Unwrap is the upstream.
func (r *Resource) Unwrap() core.Resource { return r.upstream }

// Withhold forwards.
func (r *Resource) Withhold(id core.BlockID, as core.BlockState) { r.upstream.Withhold(id, as) }

// CheckLive forwards.
func (r *Resource) CheckLive(ctx context.Context) error { return r.upstream.CheckLive(ctx) }

// Inspect is the upstream's.
func (r *Resource) Inspect() core.Inspector { return r.upstream.Inspect() }
