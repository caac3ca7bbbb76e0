package fencepost_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// Two whole stacks with guards that check every byte: nothing is found, and
// each runtime counts the copy as a launch of its own.
func TestPeerCopiesBetweenWholeStacks(t *testing.T) {
	a := open(t, fencepost.Config{Guard: "hunt"})
	b := open(t, fencepost.Config{Guard: "hunt", Ordinal: 1, Budget: 1 << 20})
	here, there := lease(t, a, "here"), lease(t, b, "there")
	for range 5 {
		x, err := cuda.Alloc[uint32](t.Context(), a.Memory(), 1000, cuda.AllocOptions{Stream: here.ID(), Tag: "x"})
		succeed(t, "allocating on device 0", err)
		y, err := cuda.Alloc[uint32](t.Context(), b.Memory(), 1000, cuda.AllocOptions{Stream: there.ID(), Tag: "y"})
		succeed(t, "allocating on device 1", err)
		succeed(t, "filling", cuda.Memset(t.Context(), x, here.ID(), 7))
		succeed(t, "copying", cuda.CopyFromPeer(t.Context(), y, there.ID(), x, core.DefaultStream))
		succeed(t, "freeing the source", x.Free(t.Context()))
		got, err := cuda.Download(t.Context(), y, there.ID())
		succeed(t, "downloading", err)
		if got[0] != 0x07070707 || got[999] != 0x07070707 {
			t.Fatalf("copied %#x to %#x", got[0], got[999])
		}
		succeed(t, "freeing the destination", y.Free(t.Context()))
	}
	for _, rt := range []*fencepost.Runtime{a, b} {
		succeed(t, "draining", rt.Drain(t.Context()))
		for _, f := range simulated(rt).Findings() {
			t.Errorf("the oracle of device %d: %v", rt.Ordinal(), f)
		}
	}
}

func TestTrimPoolGivesMemoryBack(t *testing.T) {
	rt := open(t, fencepost.Config{})
	s := lease(t, rt, "s")
	free(t, rt, allocate(t, rt, 64<<20, s.ID(), "peak"))
	succeed(t, "draining", rt.Drain(t.Context()))
	if reserved, _, _, _, err := rt.PoolStats(); err != nil || reserved < 64<<20 {
		t.Fatalf("the pool holds %d bytes, %v", reserved, err)
	}
	succeed(t, "trimming", rt.TrimPool(t.Context(), 4<<20))
	succeed(t, "reaping", rt.ReapPending(t.Context()))
	reserved, high, _, usedHigh, err := rt.PoolStats()
	if err != nil || reserved > 4<<20 || high < 64<<20 || usedHigh < 64<<20 {
		t.Errorf("the pool holds %d bytes of at most %d, used at most %d, %v", reserved, high, usedHigh, err)
	}
}

func TestStatsHaveThePoolsHighMarks(t *testing.T) {
	rt := open(t, fencepost.Config{})
	free(t, rt, allocate(t, rt, 8<<20, core.DefaultStream, "peak"))
	succeed(t, "draining", rt.Drain(t.Context()))
	if st := rt.Stats(); st.ReservedHigh < 8<<20 || st.PoolUsedHigh < 8<<20 || st.PoolUsed >= 8<<20 {
		t.Errorf("%+v", st)
	}
}

func TestADirectStackHasNoPoolToTrim(t *testing.T) {
	rt := open(t, fencepost.Config{Resource: fencepost.Direct, Sim: sim.Config{Bytes: 64 << 20}})
	if err := rt.TrimPool(t.Context(), 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
