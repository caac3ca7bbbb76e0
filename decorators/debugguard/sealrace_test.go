package debugguard_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// interrupted is a fake in which something happens, once, when a launch has
// been prepared.
type interrupted struct {
	*coretest.Fake
	launch string
	happen func()
}

func (i *interrupted) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	t, err := i.Fake.PrepareUse(ctx, req)
	if req.Launch == i.launch {
		i.launch = ""
		i.happen()
	}
	return t, err
}

// interrupt is a bench over such a fake.
func interrupt(t *testing.T, mode debugguard.Mode, change ...func(*debugguard.Config)) (*bench, *interrupted) {
	b := newBench(t, mode)
	upstream := &interrupted{Fake: b.fake}
	b.guard = b.over(upstream, mode, append(change, sampled)...)
	return b, upstream
}

func writes(block core.Block) core.UseRequest {
	return core.UseRequest{Stream: 1, Launch: "writer", Uses: []core.Use{{Block: block.ID, Access: core.Write}}}
}

// A write that was being declared while its block was sealed is a declared
// write, and no mystery that a checksum finds later.
func TestASealDuringTheDeclarationOfAWriteFindsIt(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Ledger, debugguard.Sample, debugguard.Hunt} {
		b, upstream := interrupt(t, mode)
		block := b.alloc(64)
		upstream.launch, upstream.happen = "writer", func() {
			expect.Success(t, b.guard.Seal(ctx, block.ID))
		}
		b.launch("writer", 1, func() { b.mem.poke(block.ID.Ptr, 64) }, block)
		expect.Success(t, b.guard.CheckSeals(ctx))
		b.free(block)
		b.empty()
		f := b.want(names.FindingSealedWrite)[0]
		if !slices.Equal(launchesOf(f.Suspects), []string{"writer"}) || !strings.Contains(f.Text, "declared to write") {
			t.Errorf("%v: %v", mode, f)
		}
	}
}

func TestASealDuringTheDeclarationOfAWriteRefusesIt(t *testing.T) {
	b, upstream := interrupt(t, debugguard.Hunt, func(c *debugguard.Config) { c.Advanced.Refuse = true })
	block := b.alloc(64)
	b.launch("init", 1, func() { b.mem.poke(block.ID.Ptr, 64) }, block)
	upstream.launch, upstream.happen = "writer", func() {
		expect.Success(t, b.guard.Seal(ctx, block.ID))
	}
	expect.ErrorOf(b.guard.PrepareUse(ctx, writes(block)))(t, core.ErrStreamMisuse, "the write was not refused")
	b.want(names.FindingSealedWrite)
	expect.ErrorOf(b.guard.PrepareUse(ctx, writes(block)))(t, core.ErrStreamMisuse, "the seal was lost")
	b.want(names.FindingSealedWrite)
	b.free(block)
	b.empty()
	b.want()
}

// A seal that is not there yet when a write is declared is refused; the write
// is none to a sealed block.
func TestAWriteDeclaredDuringASealRefusesTheSeal(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		b, upstream := interrupt(t, debugguard.Sample, func(c *debugguard.Config) { c.Advanced.Refuse = refuse })
		block := b.alloc(64)
		var open core.Ticket
		upstream.launch, upstream.happen = "gpumem.guard.seal", func() {
			var err error
			if open, err = b.guard.PrepareUse(ctx, writes(block)); err != nil {
				t.Error(err)
			}
		}
		expect.Error(t, b.guard.Seal(ctx, block.ID), core.ErrStreamMisuse, "Seal")
		b.mem.poke(block.ID.Ptr, 64)
		b.finish(open)
		expect.Success(t, b.guard.CheckSeals(ctx))
		b.launch("writer", 1, func() { b.mem.poke(block.ID.Ptr, 64) }, block) // it is not sealed
		b.free(block)
		b.empty()
		b.want()
	}
}

func TestAModeChangeDuringASealLeavesNone(t *testing.T) {
	b, upstream := interrupt(t, debugguard.Sample)
	block := b.alloc(64)
	upstream.launch, upstream.happen = "gpumem.guard.seal", func() { b.mode(debugguard.Off) }
	if err := b.guard.Seal(ctx, block.ID); err != nil {
		t.Errorf("Seal: %v", err)
	}
	b.mode(debugguard.Ledger)
	b.launch("writer", 1, func() { b.mem.poke(block.ID.Ptr, 64) }, block)
	b.free(block)
	b.empty()
	b.want()
}

// A block that is freed while it is sealed is freed, and no seal of it stays.
func TestHammerOfSealsAndFreesLeavesNoSeal(t *testing.T) {
	for mode, rounds := range map[debugguard.Mode]int{debugguard.Ledger: 15_000, debugguard.Sample: 2000, debugguard.Hunt: 1000} {
		if testing.Short() {
			rounds /= 5
		}
		b := newBench(t, mode, sampled)
		b.fake.ReleaseAtFree()
		for range rounds {
			block := b.alloc(64)
			var ready atomic.Int32
			together := func() {
				for ready.Add(1); ready.Load() < 2; {
					runtime.Gosched()
				}
			}
			var group sync.WaitGroup
			group.Go(func() {
				together()
				if err := b.guard.Seal(ctx, block.ID); err != nil && !errors.Is(err, core.ErrUseAfterFree) {
					t.Error(err)
				}
			})
			together()
			b.free(block)
			group.Wait()
		}
		b.drain()
		b.sink.taken() // who comes late is told of a stale handle
		if n := b.guard.Seals(); n != 0 {
			t.Errorf("%v: %d seals of freed blocks are left", mode, n)
		}
		b.empty()
	}
}
