package coretest

import (
	"context"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// PrepareUse opens an intent; the fake queues no waits.
func (f *Fake) PrepareUse(_ context.Context, r core.UseRequest) (core.Ticket, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("PrepareUse", "%s %d", r.Launch, len(r.Uses)); err != nil {
		return core.Ticket{}, err
	}
	in, err := core.OpenIntent(f, r)
	if err != nil {
		return core.Ticket{}, err
	}
	for i := range in.Uses {
		b, err := f.live("PrepareUse", in.Uses[i].Block)
		if err != nil {
			in.Recycle()
			return core.Ticket{}, err
		}
		in.Uses[i].Tag, in.Uses[i].Requested, in.Uses[i].Bytes = b.Tag, b.Requested, b.Bytes
	}
	f.stats.OpenIntents++
	return in.Ticket(f), nil
}

// FinishUse closes the intent.
func (f *Fake) FinishUse(_ context.Context, t core.Ticket) error { return f.end("FinishUse", t) }

// AbortUse closes the intent.
func (f *Fake) AbortUse(_ context.Context, t core.Ticket) error { return f.end("AbortUse", t) }

func (f *Fake) end(op string, t core.Ticket) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	scripted := f.begin(op, "")
	in, err := t.End(f, op)
	if err != nil {
		return err
	}
	in.Recycle()
	f.stats.OpenIntents--
	if op == "FinishUse" {
		f.stats.Launches++
	} else {
		f.stats.Aborts++
	}
	return scripted
}

// RecordUse checks the block.
func (f *Fake) RecordUse(_ context.Context, id core.BlockID, stream core.StreamID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("RecordUse", "%d %v", id.Generation, stream); err != nil {
		return err
	}
	_, err := f.live("RecordUse", id)
	return err
}

// Reserve refuses: a backend has no budget.
func (f *Fake) Reserve(context.Context, uint64, core.Tag) (core.Claim, error) {
	return core.Claim{}, core.UnsupportedError("Reserve", f.String(), "add decorators/budget to the stack")
}

// ReleaseClaim refuses: a backend has no budget.
func (f *Fake) ReleaseClaim(context.Context, core.ClaimID) error {
	return core.UnsupportedError("ReleaseClaim", f.String(), "add decorators/budget to the stack")
}

// ReapPending is noted and releases nothing; see [Fake.Pass].
func (f *Fake) ReapPending(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begin("ReapPending", "")
}

// Drain passes all pending frees.
func (f *Fake) Drain(context.Context) error {
	f.mu.Lock()
	err := f.begin("Drain", "")
	f.mu.Unlock()
	if err == nil {
		f.Pass()
	}
	return err
}

// State is the block's state.
func (f *Fake) State(id core.BlockID) core.BlockState {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := f.blocks[id.Generation]; ok {
		return b.State
	}
	return core.Freed
}

// Stats is the fake's books.
func (f *Fake) Stats() core.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// FreedOn is the odometer of the stream.
func (f *Fake) FreedOn(id core.StreamID) core.Odometer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.odometers[id]
}

// Subscribe adds a listener.
func (f *Fake) Subscribe(l core.Listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners = append(f.listeners, l)
}

// Blocks lists the blocks that are not released.
func (f *Fake) Blocks(yield func(core.BlockInfo) bool) {
	f.mu.Lock()
	infos := make([]core.BlockInfo, 0, len(f.blocks))
	for _, b := range f.blocks {
		infos = append(infos, core.BlockInfo{Block: *b})
	}
	f.mu.Unlock()
	for _, info := range infos {
		if !yield(info) {
			return
		}
	}
}

// Ordinal is the fake's device.
func (f *Fake) Ordinal() int { return f.ordinal }

// Features is use tracking in stream order.
func (f *Fake) Features() core.Features { return core.UseTracking | core.StreamOrdered }

// Unwrap is nil: the fake is a backend.
func (f *Fake) Unwrap() core.Resource { return nil }

// String is "fake:ordinal".
func (f *Fake) String() string { return fmt.Sprintf("fake:%d", f.ordinal) }
