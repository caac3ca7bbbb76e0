package telemetry

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// The calls below are part of no traced operation and are forwarded as they
// are.

// String names the stack, such as "probe(budget(async(sim:0)))".
func (p *Probe) String() string { return "probe(" + p.upstream.String() + ")" }

// Ordinal is the upstream's device.
func (p *Probe) Ordinal() int { return p.upstream.Ordinal() }

// Features are the upstream's.
func (p *Probe) Features() core.Features { return p.upstream.Features() }

// RecordUse forwards.
func (p *Probe) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	return p.upstream.RecordUse(ctx, id, stream)
}

// Reserve forwards.
func (p *Probe) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	return p.upstream.Reserve(ctx, bytes, tag)
}

// ReleaseClaim forwards.
func (p *Probe) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	return p.upstream.ReleaseClaim(ctx, id)
}

// Drain forwards. It blocks as its upstream does.
func (p *Probe) Drain(ctx context.Context) error { return p.upstream.Drain(ctx) }

// State is the upstream's.
func (p *Probe) State(id core.BlockID) core.BlockState { return p.upstream.State(id) }

// Stats are the upstream's.
func (p *Probe) Stats() core.Stats { return p.upstream.Stats() }

// FreedOn is the upstream's.
func (p *Probe) FreedOn(id core.StreamID) core.FreeCounters { return p.upstream.FreedOn(id) }

// Subscribe hands the listener to the upstream: releases are the same here.
func (p *Probe) Subscribe(l core.Listener) { p.upstream.Subscribe(l) }

// Unwrap is the upstream.
func (p *Probe) Unwrap() core.Resource { return p.upstream }

// Withhold forwards.
func (p *Probe) Withhold(id core.BlockID, as core.BlockState) { p.upstream.Withhold(id, as) }

// CheckLive forwards.
func (p *Probe) CheckLive(ctx context.Context) error { return p.upstream.CheckLive(ctx) }

// Inspect is the upstream's.
func (p *Probe) Inspect() core.Inspector { return p.upstream.Inspect() }
