package budget

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// What follows has nothing to do with bytes and goes through unchanged. Each
// method is written out so that one added to the contract has to be decided
// on here.

// Ordinal is the upstream's device.
func (r *Resource) Ordinal() int { return r.upstream.Ordinal() }

// Features is what the upstream can do, and core.Reservations, which the
// budget implements itself.
func (r *Resource) Features() core.Features { return r.upstream.Features() | core.Reservations }

// PrepareUse is the upstream's.
func (r *Resource) PrepareUse(ctx context.Context, u core.UseRequest) (core.Ticket, error) {
	return r.upstream.PrepareUse(ctx, u)
}

// FinishUse is the upstream's.
func (r *Resource) FinishUse(ctx context.Context, t core.Ticket) error {
	return r.upstream.FinishUse(ctx, t)
}

// AbortUse is the upstream's.
func (r *Resource) AbortUse(ctx context.Context, t core.Ticket) error {
	return r.upstream.AbortUse(ctx, t)
}

// RecordUse is the upstream's.
func (r *Resource) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	return r.upstream.RecordUse(ctx, id, stream)
}

// ReapPending is the upstream's; what it releases leaves the ledger before
// it returns.
func (r *Resource) ReapPending(ctx context.Context) error { return r.upstream.ReapPending(ctx) }

// Drain is the upstream's; it blocks until every queued free is passed, or
// ctx ends.
func (r *Resource) Drain(ctx context.Context) error { return r.upstream.Drain(ctx) }

// State is the upstream's.
func (r *Resource) State(id core.BlockID) core.BlockState { return r.upstream.State(id) }

// FreedOn is the upstream's.
func (r *Resource) FreedOn(id core.StreamID) core.Odometer { return r.upstream.FreedOn(id) }

// Subscribe adds a listener for the upstream's notices. The budget heard of
// each block first: its bytes have left the ledger when l is called.
func (r *Resource) Subscribe(l core.Listener) { r.upstream.Subscribe(l) }

// Unwrap is the upstream.
func (r *Resource) Unwrap() core.Resource { return r.upstream }
