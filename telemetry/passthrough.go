package telemetry

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// String names the stack, such as "telemetry(budget(async(sim:0)))".
func (r *Resource) String() string { return "telemetry(" + r.upstream.String() + ")" }

// Ordinal is the upstream's device.
func (r *Resource) Ordinal() int { return r.upstream.Ordinal() }

// Features are the upstream's.
func (r *Resource) Features() core.Features { return r.upstream.Features() }

// RecordUse forwards and counts. It makes no span: the work was enqueued
// before the call.
func (r *Resource) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	start := core.Now()
	err := r.upstream.RecordUse(r.tracing.correlate(ctx), id, stream)
	took := core.Now().Since(start)
	var span core.SpanRef
	if err != nil {
		span = r.tracing.failed(ctx, &core.Event{Op: core.OpRecord, Stream: stream, Block: id, Duration: took, Err: err})
	}
	r.counters.note(core.OpRecord, took, span, err)
	return err
}

// Reserve forwards and counts.
func (r *Resource) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	start := core.Now()
	claim, err := r.upstream.Reserve(r.tracing.correlate(ctx), bytes, tag)
	took := core.Now().Since(start)
	var span core.SpanRef
	if err != nil {
		span = r.tracing.failed(ctx, &core.Event{Op: core.OpReserve, Tag: tag, Bytes: bytes, Duration: took, Err: err})
	}
	r.counters.note(core.OpReserve, took, span, err)
	return claim, err
}

// ReleaseClaim forwards and counts.
func (r *Resource) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	start := core.Now()
	err := r.upstream.ReleaseClaim(r.tracing.correlate(ctx), id)
	took := core.Now().Since(start)
	var span core.SpanRef
	if err != nil {
		span = r.tracing.failed(ctx, &core.Event{Op: core.OpReleaseClaim, Duration: took, Err: err})
	}
	r.counters.note(core.OpReleaseClaim, took, span, err)
	return err
}

// ReapPending forwards and counts.
func (r *Resource) ReapPending(ctx context.Context) error {
	start := core.Now()
	err := r.upstream.ReapPending(ctx)
	took := core.Now().Since(start)
	var span core.SpanRef
	if err != nil {
		span = r.tracing.failed(ctx, &core.Event{Op: core.OpReap, Duration: took, Err: err})
	}
	r.counters.note(core.OpReap, took, span, err)
	return err
}

// Drain forwards and counts. It blocks as its upstream does.
func (r *Resource) Drain(ctx context.Context) error {
	start := core.Now()
	err := r.upstream.Drain(ctx)
	took := core.Now().Since(start)
	var span core.SpanRef
	if err != nil {
		span = r.tracing.failed(ctx, &core.Event{Op: core.OpDrain, Duration: took, Err: err})
	}
	r.counters.note(core.OpDrain, took, span, err)
	return err
}

// State is the upstream's.
func (r *Resource) State(id core.BlockID) core.BlockState { return r.upstream.State(id) }

// Stats are the upstream's.
func (r *Resource) Stats() core.Stats { return r.upstream.Stats() }

// FreedOn is the upstream's.
func (r *Resource) FreedOn(id core.StreamID) core.FreeCounters { return r.upstream.FreedOn(id) }

// Subscribe hands the listener to the upstream: releases are the same here.
func (r *Resource) Subscribe(l core.Listener) { r.upstream.Subscribe(l) }

// Unwrap is the upstream, for inspection only.
func (r *Resource) Unwrap() core.Resource { return r.upstream }

// Withhold passes on to an upstream that takes it.
func (r *Resource) Withhold(id core.BlockID, as core.BlockState) {
	core.WithholderOf(r.upstream).Withhold(id, as)
}
