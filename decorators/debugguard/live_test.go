package debugguard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func (b *bench) checkLive() {
	b.Helper()
	must.Do(b, b.guard.CheckLive(ctx))
}

// Blocks of several streams are compared, many at a time, and once each; what
// was told is not told again when they are freed after all.
func TestLiveBlocksAreComparedInBatchesAndToldOnce(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	var blocks []core.Block
	for i := range 100 {
		blocks = append(blocks, b.allocOn(core.StreamID(1+i%2), 64))
	}
	b.mem.poke(blocks[7].ID.Ptr+64, 1)
	b.fake.Calls()
	b.checkLive()
	prepared := 0
	for _, call := range b.fake.Calls() {
		if call == "PrepareUse gpumem.guard.live 50" {
			prepared++
		}
	}
	if prepared != 2 {
		t.Errorf("100 blocks of two streams in %d batches of 50, want 2", prepared)
	}
	b.drain()
	if f := b.want(names.FindingOutOfBoundsWrite)[0]; f.Victim.ID.Generation != blocks[7].ID.Generation || f.Victim.State != core.Live {
		t.Errorf("found %v", f)
	}
	for _, block := range blocks {
		b.free(block)
	}
	b.empty()
	b.want()
}

// A block whose free an open launch keeps back is compared too, and one that
// cannot be is counted and hides no other.
func TestABlockThatCannotBeComparedHidesNoOther(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	deferred, victim := b.alloc(64), b.alloc(64)
	ticket := b.prepare("open", 1, deferred)
	b.free(deferred)
	b.mem.poke(deferred.ID.Ptr+64, 1)
	b.mem.poke(victim.ID.Ptr+64, 1)
	b.fake.FailNext("PrepareUse", errDevice, errDevice) // that of both, and that of one
	b.checkLive()
	must.Do(t, b.guard.Drain(ctx))
	b.want(names.FindingOutOfBoundsWrite)
	if g := b.guard.GuardStats(); g.Unchecked != 1 {
		t.Errorf("%d are left out, want 1", g.Unchecked)
	}
	b.checkLive()
	b.drain()
	b.want(names.FindingOutOfBoundsWrite)
	b.finish(ticket)
	b.free(victim)
	b.empty()
	b.want()
}

func TestCheckLiveKeepsToItsContextAndAsksALostDeviceOnce(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	blocks := []core.Block{b.allocOn(1, 64), b.allocOn(2, 64), b.allocOn(3, 64)}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := b.guard.CheckLive(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it says %v after its context has ended", err)
	}
	lost := *errDevice
	lost.Sticky = true
	b.fake.FailNext("PrepareUse", &lost)
	b.fake.Calls()
	if err := b.guard.CheckLive(ctx); !errors.Is(err, core.ErrSticky) {
		t.Errorf("it says %v of a lost device", err)
	}
	if calls := b.fake.Calls(); len(calls) != 1 {
		t.Errorf("a lost device was asked %v", calls)
	}
	for _, block := range blocks {
		b.free(block)
	}
	b.empty()
	b.want()
}

// There is nothing to compare where nothing has red zones.
func TestCheckLiveDoesNothingInTheModesWithoutRedZones(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Off, debugguard.Ledger} {
		b := newBench(t, mode)
		block := b.alloc(64)
		b.fake.Calls()
		b.checkLive()
		if calls := b.fake.Calls(); len(calls) != 0 {
			t.Errorf("%v: %v", mode, calls)
		}
		b.free(block)
		b.empty()
	}
}
