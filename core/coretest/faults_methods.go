package coretest

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// Allocate forwards, or fails; a block that was handed out by then is given
// back.
func (f *Faults) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	before, after := f.next("Allocate")
	if before != nil {
		return core.Block{}, before
	}
	b, err := f.upstream.Allocate(ctx, r)
	if err != nil || after == nil {
		return b, err
	}
	_, _ = f.upstream.Deallocate(ctx, b.ID)
	return core.Block{}, after
}

// Deallocate forwards, or fails.
func (f *Faults) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	before, after := f.next("Deallocate")
	if before != nil {
		return core.Block{}, before
	}
	b, err := f.upstream.Deallocate(ctx, id)
	if err != nil || after == nil {
		return b, err
	}
	return core.Block{}, after
}

// PrepareUse forwards, or fails; an intent that was open by then is aborted.
func (f *Faults) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	before, after := f.next("PrepareUse")
	if before != nil {
		return core.Ticket{}, before
	}
	t, err := f.upstream.PrepareUse(ctx, r)
	if err != nil || after == nil {
		return t, err
	}
	_ = f.upstream.AbortUse(ctx, t)
	return core.Ticket{}, after
}

// FinishUse forwards and then fails, if it is to fail.
func (f *Faults) FinishUse(ctx context.Context, t core.Ticket) error {
	before, after := f.next("FinishUse")
	return first(f.upstream.FinishUse(ctx, t), before, after)
}

// AbortUse forwards and then fails, if it is to fail.
func (f *Faults) AbortUse(ctx context.Context, t core.Ticket) error {
	before, after := f.next("AbortUse")
	return first(f.upstream.AbortUse(ctx, t), before, after)
}

// RecordUse forwards, or fails.
func (f *Faults) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	return f.around("RecordUse", func() error { return f.upstream.RecordUse(ctx, id, stream) })
}

// Reserve forwards, or fails; a claim that was granted by then is released.
func (f *Faults) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	before, after := f.next("Reserve")
	if before != nil {
		return core.Claim{}, before
	}
	c, err := f.upstream.Reserve(ctx, bytes, tag)
	if err != nil || after == nil {
		return c, err
	}
	_ = f.upstream.ReleaseClaim(ctx, c.ID)
	return core.Claim{}, after
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
	return first(call(), after)
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
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
