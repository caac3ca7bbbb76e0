package gputest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

func TestTwoGPUsConform(t *testing.T) {
	provokesErrors(t)
	first, second := twoGPUs(t)
	drivertest.PeerConformance(t, func(*testing.T) (a, b driver.Driver) { return first.Driver, second.Driver })
}

// pair is a runtime on each of two GPUs, whose streams run far apart.
func pair(t *testing.T) (a, b *bench) {
	t.Helper()
	first, second := twoGPUs(t)
	a, _ = first.delayedBench(t, 1)
	b, _ = second.delayedBench(t, 2)
	return a, b
}

// Values go to the other GPU, are counted on there, and come back, while the
// source is written anew at once. Each kernel runs on another stream than the
// copy beside it.
func TestPeerCopiesKeepTheirValues(t *testing.T) {
	a, b := pair(t)
	n := scaled(1<<18, 1<<12)
	x, y := a.leases(3), b.leases(3)
	there, back := a.alloc(x[0], n, "there"), a.alloc(x[1], n, "back")
	sumA, err := a.counter(x[2])
	must(t, err)
	sumB, err := b.counter(y[2])
	must(t, err)
	for round := range uint64(scaled(100, 5)) {
		value := (round + 1) << 8
		arrived, onward := b.alloc(y[0], n, "arrived"), b.alloc(y[1], n, "onward")
		must(t, a.doWrite(x[0], there, value))
		must(t, cuda.CopyFromPeer(ctx, arrived, y[0].ID(), there, x[1].ID()))
		must(t, a.doWrite(x[2], there, 0)) // waits for the copy
		must(t, b.doCheck(y[2], arrived, value, sumB))
		must(t, b.doCopy(y[1], onward, arrived, 1))
		must(t, arrived.Free(ctx))
		must(t, cuda.CopyFromPeer(ctx, back, x[round%3].ID(), onward, y[0].ID()))
		must(t, onward.Free(ctx))
		must(t, a.doCheck(x[2], back, value+1, sumA))
	}
	a.right(x[2], sumA)
	b.right(y[2], sumB)
	a.give([]*words{there, back})
}

func TestTheWorkloadRunsOnTwoGPUsSideBySide(t *testing.T) {
	first, second := twoGPUs(t)
	var group sync.WaitGroup
	for i, h := range []*hardware{first, second} {
		b := h.bench(t, fencepost.Config{Streams: workloadStreams})
		group.Go(func() {
			cfg := regression(uint64(i))
			if r, err := b.tryWorkload(cfg); err != nil || r.Wrong != 0 || r.Checked != results(cfg) {
				t.Errorf("GPU %d: %+v, %v", h.Ordinal(), r, err)
			}
		})
	}
	group.Wait()
}

func TestABlockOfOneGPUIsRefusedByTheOther(t *testing.T) {
	first, second := twoGPUs(t)
	a, b := first.bench(t, fencepost.Config{Guard: "off"}), second.bench(t, fencepost.Config{Guard: "off"})
	x, y := a.lease("a"), b.lease("b")
	block := a.alloc(x, 100, "foreign")
	id := block.BlockID()
	_, freeErr := b.Deallocate(ctx, id)
	launchErr := b.Launch(ctx, y.ID(), []core.Use{block.Use(core.Read)}, func(context.Context) error {
		t.Error("the launch was let through")
		return nil
	})
	recordErr := b.Core().RecordBlockUse(ctx, id, y.ID())
	for what, err := range map[string]error{"free": freeErr, "launch": launchErr, "record": recordErr} {
		if !errors.Is(err, core.ErrStreamMisuse) {
			t.Errorf("%s on the other GPU: %v, want a misuse", what, err)
		}
	}
	if state := a.Core().State(id); state != core.Live {
		t.Errorf("the block is %v at home", state)
	}
	must(t, block.Free(ctx))
}
