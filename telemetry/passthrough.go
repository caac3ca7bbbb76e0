package telemetry

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// String names the stack, such as "telemetry(budget(async(sim:0)))".
func (r *Resource) String() string { return "telemetry(" + r.upstream.String() + ")" }

// Ordinal is the upstream's device.
func (r *Resource) Ordinal() int { return r.upstream.Ordinal() }

// Features are the upstream's.
func (r *Resource) Features() core.Features { return r.upstream.Features() }

// count counts a call that has no span of its own, and returns its error; e says
// what is known of it.
func (r *Resource) count(ctx context.Context, start monotime.Instant, e core.Event) error {
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
	return r.count(ctx, start, core.Event{Op: core.OpRecord, Stream: stream, Block: id, Err: err})
}

// Reserve forwards and counts.
func (r *Resource) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	start := monotime.Now()
	claim, err := r.upstream.Reserve(r.tracing.correlate(ctx), bytes, tag)
	return claim, r.count(ctx, start, core.Event{Op: core.OpReserve, Tag: tag, Bytes: bytes, Err: err})
}

// ReleaseClaim forwards and counts.
func (r *Resource) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	start := monotime.Now()
	err := r.upstream.ReleaseClaim(r.tracing.correlate(ctx), id)
	return r.count(ctx, start, core.Event{Op: core.OpReleaseClaim, Err: err})
}

// ReapPending forwards and counts.
func (r *Resource) ReapPending(ctx context.Context) error {
	start := monotime.Now()
	err := r.upstream.ReapPending(ctx)
	return r.count(ctx, start, core.Event{Op: core.OpReap, Err: err})
}

// Drain forwards and counts. It blocks as its upstream does.
func (r *Resource) Drain(ctx context.Context) error {
	start := monotime.Now()
	err := r.upstream.Drain(ctx)
	return r.count(ctx, start, core.Event{Op: core.OpDrain, Err: err})
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
