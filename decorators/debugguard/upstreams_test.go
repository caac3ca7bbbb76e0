package debugguard_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// refusing is a fake with a budget that makes the refusals it is told to, and
// counts them.
type refusing struct {
	*coretest.Fake
	refusals, counted uint64
}

func (r *refusing) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	if r.refusals > 0 {
		r.refusals--
		r.counted++
		return core.Block{}, &core.OutOfBudgetError{Requested: req.Requested}
	}
	return r.Fake.Allocate(ctx, req)
}

func (r *refusing) Stats() core.Stats {
	s := r.Fake.Stats()
	s.Refusals = r.counted
	return s
}

// untracked is a fake that tracks no uses.
type untracked struct{ *coretest.Fake }

func (untracked) Features() core.Features { return 0 }

func (untracked) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	return core.Unsupported{Resource: "untracked"}.PrepareUse(ctx, r)
}

func (untracked) FinishUse(ctx context.Context, t core.Ticket) error {
	return core.Unsupported{Resource: "untracked"}.FinishUse(ctx, t)
}

func (untracked) AbortUse(ctx context.Context, t core.Ticket) error {
	return core.Unsupported{Resource: "untracked"}.AbortUse(ctx, t)
}

func (untracked) RecordUse(ctx context.Context, id core.BlockID, s core.StreamID) error {
	return core.Unsupported{Resource: "untracked"}.RecordUse(ctx, id, s)
}

// delayed frees at once, hands the same address out again, and takes its time
// before Deallocate returns: a layer that closes its books by address and
// after the upstream's call would take the newcomer for the block that left.
type delayed struct {
	*coretest.Fake
	mu    sync.Mutex
	free  []uint64
	inner map[core.Generation]uint64 // the fake's own pointers
	wait  time.Duration
}

func (d *delayed) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	b, err := d.Fake.Allocate(ctx, req)
	if err != nil {
		return b, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inner[b.ID.Generation] = b.ID.Ptr
	if n := len(d.free); n > 0 {
		b.ID.Ptr, d.free = d.free[n-1], d.free[:n-1]
	}
	return b, nil
}

func (d *delayed) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	b, err := d.Fake.Deallocate(ctx, d.own(id))
	if err == nil {
		d.mu.Lock()
		d.free = append(d.free, id.Ptr)
		d.mu.Unlock()
		time.Sleep(d.wait)
	}
	return b, err
}

func (d *delayed) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	uses := slices.Clone(req.Uses)
	for i := range uses {
		uses[i].Block = d.own(uses[i].Block)
	}
	req.Uses = uses
	return d.Fake.PrepareUse(ctx, req)
}

// own is the id as the fake knows it.
func (d *delayed) own(id core.BlockID) core.BlockID {
	d.mu.Lock()
	defer d.mu.Unlock()
	id.Ptr = d.inner[id.Generation]
	return id
}

func (d *delayed) RecordUse(ctx context.Context, id core.BlockID, s core.StreamID) error {
	return d.Fake.RecordUse(ctx, d.own(id), s)
}

// reusing is a fake that gives out the address freed last again.
func reusing() *delayed {
	return &delayed{Fake: coretest.NewFake(0), inner: map[core.Generation]uint64{}}
}

// ordered is a fake that says which uses an access would race with.
type ordered struct {
	*coretest.Fake
	racing []core.UseRecord
	asked  int
}

func (o *ordered) Inspect() core.Inspector {
	return orderer{o.Fake.Inspect(), func() []core.UseRecord { o.asked++; return o.racing }}
}

type orderer struct {
	core.Inspector
	racing func() []core.UseRecord
}

func (o orderer) Unordered(core.BlockID, core.StreamID, core.Access) ([]core.UseRecord, bool) {
	return o.racing(), true
}

// silent is a layer that tells nothing of what lies below it.
type silent struct{ core.Resource }

func (s silent) Unwrap() core.Resource                { return s.Resource }
func (silent) Inspect() core.Inspector                { return core.Unsupported{}.Inspect() }
func (silent) Withhold(core.BlockID, core.BlockState) {}
func (silent) CheckLive(context.Context) error        { return nil }

// What the guard is not told costs findings and figures, and finds no bug that is
// none.
func TestAGuardOverALayerThatTellsNothing(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Ledger, debugguard.Sample, debugguard.Hunt} {
		b := newBench(t, debugguard.Off)
		b.guard = b.over(silent{b.fake}, mode)
		block := b.alloc(64)
		if err := b.guard.RecordUse(ctx, block.ID, 2); err != nil { // that nothing orders
			t.Errorf("%v: %v", mode, err)
		}
		listed := 0
		for range b.guard.Inspect().Blocks {
			listed++
		}
		if listed != 1 || b.guard.CheckLive(ctx) != nil {
			t.Errorf("%v: %d blocks are listed, want 1", mode, listed)
		}
		b.want()
		b.free(block)
		b.empty()
	}
}
