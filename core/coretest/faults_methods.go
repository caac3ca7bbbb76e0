package coretest

import (
	"cmp"
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// Allocate forwards, or fails; a block that was handed out by then is given
// back.
func (f *Faults) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	return answer(f, "Allocate", func() (core.Block, error) { return f.upstream.Allocate(ctx, r) },
		func(b core.Block) { _, _ = f.upstream.Deallocate(ctx, b.ID) })
}

// Deallocate forwards, or fails.
func (f *Faults) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	return answer(f, "Deallocate", func() (core.Block, error) { return f.upstream.Deallocate(ctx, id) }, nil)
}

// PrepareUse forwards, or fails; an intent that was open by then is aborted.
func (f *Faults) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	return answer(f, "PrepareUse", func() (core.Ticket, error) { return f.upstream.PrepareUse(ctx, r) },
		func(t core.Ticket) { _ = f.upstream.AbortUse(ctx, t) })
}

// answer makes a call unless it is to fail. If it is to fail after the fact, undo
// gives back what upstream handed out.
func answer[T any](f *Faults, method string, call func() (T, error), undo func(T)) (none T, err error) {
	before, after := f.next(method)
	if before != nil {
		return none, before
	}
	v, err := call()
	if err != nil || after == nil {
		return v, err
	}
	if undo != nil {
		undo(v)
	}
	return none, after
}

// FinishUse forwards and then fails, if it is to fail.
func (f *Faults) FinishUse(ctx context.Context, t core.Ticket) error {
	before, after := f.next("FinishUse")
	return cmp.Or(f.upstream.FinishUse(ctx, t), before, after)
}

// AbortUse forwards and then fails, if it is to fail.
func (f *Faults) AbortUse(ctx context.Context, t core.Ticket) error {
	before, after := f.next("AbortUse")
	return cmp.Or(f.upstream.AbortUse(ctx, t), before, after)
}

// RecordUse forwards, or fails.
func (f *Faults) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	return f.around("RecordUse", func() error { return f.upstream.RecordUse(ctx, id, stream) })
}

// Reserve forwards, or fails; a claim that was granted by then is released.
func (f *Faults) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	return answer(f, "Reserve", func() (core.Claim, error) { return f.upstream.Reserve(ctx, bytes, tag) },
		func(c core.Claim) { _ = f.upstream.ReleaseClaim(ctx, c.ID) })
}

// ReleaseClaim forwards, or fails.
func (f *Faults) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	return f.around("ReleaseClaim", func() error { return f.upstream.ReleaseClaim(ctx, id) })
}

// ReapPending forwards, or fails.
func (f *Faults) ReapPending(ctx context.Context) error {
	return f.around("ReapPending", func() error { return f.upstream.ReapPending(ctx) })
}

// Drain forwards, or fails.
func (f *Faults) Drain(ctx context.Context) error {
	return f.around("Drain", func() error { return f.upstream.Drain(ctx) })
}

func (f *Faults) around(method string, call func() error) error {
	before, after := f.next(method)
	if before != nil {
		return before
	}
	return cmp.Or(call(), after)
}

// Ordinal is upstream's.
func (f *Faults) Ordinal() int { return f.upstream.Ordinal() }

// Features are upstream's.
func (f *Faults) Features() core.Features { return f.upstream.Features() }

// State is upstream's.
func (f *Faults) State(id core.BlockID) core.BlockState { return f.upstream.State(id) }

// Stats are upstream's.
func (f *Faults) Stats() core.Stats { return f.upstream.Stats() }

// FreedOn is upstream's.
func (f *Faults) FreedOn(id core.StreamID) core.FreeCounters { return f.upstream.FreedOn(id) }

// Subscribe forwards.
func (f *Faults) Subscribe(l core.Listener) { f.upstream.Subscribe(l) }

// Unwrap is the upstream.
func (f *Faults) Unwrap() core.Resource { return f.upstream }

// Withhold forwards, and never fails.
func (f *Faults) Withhold(id core.BlockID, as core.BlockState) { f.upstream.Withhold(id, as) }

// CheckLive forwards, or fails.
func (f *Faults) CheckLive(ctx context.Context) error {
	return f.around("CheckLive", func() error { return f.upstream.CheckLive(ctx) })
}

// Inspect is upstream's.
func (f *Faults) Inspect() core.Inspector { return f.upstream.Inspect() }
