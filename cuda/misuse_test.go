package cuda_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// A launch that waits for a conflicting intent holds nothing. If its lease is
// given back meanwhile it must not go on: the stream may be another's by then.
func TestAWaitingLaunchIsRefusedWhenItsLeaseIsGivenBack(t *testing.T) {
	for name, lease := range map[string]func(*bench) (*cuda.Lease, func()){
		"adopted": func(b *bench) (*cuda.Lease, func()) {
			l, handle := b.adopt()
			return l, func() { b.giveUp(l, handle) }
		},
		"pooled": func(b *bench) (*cuda.Lease, func()) {
			l := b.Lease(b, "late")
			return l, func() { must(b, l.Release()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			holder := b.Lease(b, "holder")
			late, giveBack := lease(b)
			block := b.alloc(holder, 256)
			ticket := b.prepare(holder, writes(block))
			answer := make(chan error)
			go func() {
				answer <- b.Runtime.Launch(ctx, late.ID(), []core.Use{{Block: block.ID, Access: core.Write}}, func(context.Context) error {
					t.Error("the launch went on under a released lease")
					return nil
				})
			}()
			time.Sleep(20 * time.Millisecond) // it waits for the holder
			giveBack()
			must(t, b.Runtime.FinishUse(ctx, ticket))
			misuse(t, "a launch under a released lease", <-answer)
			b.free(block)
		})
	}
}

func TestAnAdoptedStreamWithAnOpenLaunchIsNotGivenUp(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	ticket := b.prepare(l, writes(block))
	misuse(t, "release under an open launch", l.Release())
	must(t, b.Runtime.FinishUse(ctx, ticket))
	b.free(block)
	b.giveUp(l, handle)
}

// A launch function may enqueue several kernels. If the driver refuses a later
// one, what was enqueued before must be fenced all the same.
func TestALaterRefusalDoesNotUnfenceAnEarlierKernel(t *testing.T) {
	b := newBench(t)
	x, y := b.Lease(b, "x"), b.Lease(b, "y")
	block := b.alloc(x, 256)
	err := b.Runtime.Launch(ctx, x.ID(), []core.Use{{Block: block.ID, Access: core.Write}}, func(context.Context) error {
		must(t, b.kernel.Enqueue(x.Handle(), grid, mixArgs(1, writes(block))...))
		return b.kernel.Enqueue(0xdead, grid, mixArgs(1, writes(block))...) // no such stream
	})
	if err == nil {
		t.Error("the refusal was not reported")
	}
	if got := b.launch(y, reads(block)); got.waits != 1 {
		t.Errorf("the next reader queued %d waits, want 1", got.waits)
	}
	b.free(block)
}

func TestLeaseNumbersAreTheProcesss(t *testing.T) {
	a, b := newBench(t), newBench(t)
	if x, y := a.Lease(t, "a"), b.Lease(t, "b"); x.ID() == y.ID() {
		t.Errorf("two pools gave lease %v", x.ID())
	}
}

// Accesses recorded on streams that come and go must not pile up on a block.
func TestRecordedUsesOfShortLivedStreamsDoNotPileUp(t *testing.T) {
	b := newBench(t)
	home := b.Lease(b, "home")
	block := b.alloc(home, 256)
	before := b.Sim.Books().Events
	for range 100 {
		l, handle := b.adopt()
		must(t, b.Runtime.RecordBlockUse(ctx, block.ID, l.ID()))
		b.sync(l)
		b.giveUp(l, handle)
		must(t, b.Runtime.ReapPending(ctx))
	}
	if grown := b.Sim.Books().Events - before; grown > 10 {
		t.Errorf("%d events are left of 100 streams that are gone", grown)
	}
	b.free(block)
}

// Asking for the state of a block races with its record being used again.
func TestStateMayBeAskedWhileRecordsAreReused(t *testing.T) {
	b := newBench(t)
	l := b.Lease(b, "test")
	var group sync.WaitGroup
	ids := make(chan core.BlockID, 16)
	group.Go(func() {
		for id := range ids {
			for range 20 {
				b.Runtime.State(id)
			}
		}
	})
	for range 500 {
		block := b.alloc(l, 256)
		ids <- block.ID
		b.free(block)
		must(t, b.Runtime.ReapPending(ctx))
	}
	close(ids)
	group.Wait()
}
