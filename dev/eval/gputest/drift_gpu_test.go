package gputest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// The books and the driver's pool are compared in the background while streams
// allocate, free and pause, some blocks in mappings of their own: what is told
// is never anything but no drift.
func TestABusyDeviceDoesNotDrift(t *testing.T) {
	const goroutines = 4
	b := newBench(t, fencepost.Config{Guard: "hunt"})
	end := time.Now().Add(3 * time.Second)
	told := map[time.Time]bool{}
	must(t, together(goroutines+1, func(i int) error {
		if i == goroutines {
			for ; time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				m := b.DeviceMemory()
				told[m.DriftRead] = true
				if m.Drift != 0 {
					t.Errorf("a drift of %d bytes", m.Drift)
				}
			}
			return nil
		}
		return b.churn(rand.New(rand.NewPCG(uint64(i), 3)), end)
	}))
	if len(told) < 2 {
		t.Errorf("the drift was established %d times: nothing was compared under load", len(told))
	}
}

func (b *bench) churn(rng *rand.Rand, end time.Time) error {
	l, err := b.Streams().Acquire(ctx, "churn")
	if err != nil {
		return err
	}
	defer func() { _ = l.Release() }()
	isolated := b.Core().Resource().Features()&core.Isolation != 0
	for time.Now().Before(end) {
		block, err := b.Allocate(ctx, core.Request{Bytes: 1 + rng.Uint64N(1<<20), Stream: l.ID(), Tag: "churn", Isolated: isolated && rng.IntN(16) == 0})
		if err != nil {
			return err
		}
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
		if _, err := b.Deallocate(ctx, block.ID); err != nil {
			return err
		}
	}
	return nil
}

// Memory that the driver gives to somebody else is foreign, what the runtime
// holds is not; and a reading is cheap enough for every second.
func TestForeignMemoryIsToldApart(t *testing.T) {
	const own = 64 << 20
	foreign := uint64(scaled(256<<20, 32<<20))
	b := newBench(t, fencepost.Config{Guard: "off", Async: cuda.AsyncConfig{ReapInterval: -1}})
	s := b.lease("s")
	streams, err := cuda.NewStreamPool(b.Driver(), cuda.StreamPoolConfig{})
	must(t, err)
	other, err := cuda.NewAsyncResource(b.Driver(), streams, cuda.AsyncConfig{ReapInterval: -1})
	must(t, err)
	w := metrics.NewMemoryWatch(other, metrics.MemoryWatchConfig{Interval: -1}) // to which the runtime's is foreign, too
	before := w.Last()

	block := b.alloc(s, own/4, "own")
	must(t, w.Refresh())
	if grown := w.Last().Foreign - before.Foreign; grown < own {
		t.Errorf("foreign memory grew by %d bytes, another pool took %d", grown, own)
	}
	ptr, err := b.Driver().MemAlloc(foreign)
	must(t, err)
	between := w.Last().Foreign
	must(t, w.Refresh())
	if grown := w.Last().Foreign - between; grown < foreign {
		t.Errorf("foreign memory grew by %d bytes, somebody took %d", grown, foreign)
	}
	const rounds = 100
	start := time.Now()
	for range rounds {
		must(t, w.Refresh())
	}
	t.Logf("a reading takes %v; of %d MiB %d are free and %d foreign", time.Since(start)/rounds, w.Last().Total>>20, w.Last().Free>>20, w.Last().Foreign>>20)
	must(t, b.Driver().MemFree(ptr))
	must(t, block.Free(ctx))
	must(t, w.Close(ctx))
	must(t, other.Close(ctx))
	must(t, streams.Close(ctx))
}
