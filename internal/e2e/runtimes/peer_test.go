package runtimes_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// Two whole stacks with guards that check every byte: nothing is found, and
// each runtime counts the copy as a launch of its own.
func TestPeerCopiesBetweenWholeStacks(t *testing.T) {
	a := e2e.Open(t, fencepost.Config{Guard: "hunt"})
	b := e2e.Open(t, fencepost.Config{Guard: "hunt", Ordinal: 1, Budget: 1 << 20})
	here, there := e2e.Lease(t, a, "here"), e2e.Lease(t, b, "there")
	for range 5 {
		x := must.Get(cuda.Alloc[uint32](t.Context(), a.Memory(), 1000, cuda.AllocOptions{Stream: here.ID(), Tag: "x"}))(t)
		y := must.Get(cuda.Alloc[uint32](t.Context(), b.Memory(), 1000, cuda.AllocOptions{Stream: there.ID(), Tag: "y"}))(t)
		e2e.Succeed(t, "filling", cuda.Memset(t.Context(), x, here.ID(), 7))
		e2e.Succeed(t, "copying", cuda.CopyFromPeer(t.Context(), y, there.ID(), x, core.DefaultStream))
		e2e.Succeed(t, "freeing the source", x.Free(t.Context()))
		got := must.Get(cuda.Download(t.Context(), y, there.ID()))(t)
		if got[0] != 0x07070707 || got[999] != 0x07070707 {
			t.Fatalf("copied %#x to %#x", got[0], got[999])
		}
		e2e.Succeed(t, "freeing the destination", y.Free(t.Context()))
	}
	for _, rt := range []*fencepost.Runtime{a, b} {
		e2e.Succeed(t, "draining", rt.Drain(t.Context()))
		for _, f := range e2e.Simulated(rt).Findings() {
			t.Errorf("the oracle of device %d: %v", rt.Ordinal(), f)
		}
	}
}

// readPool reads the pool, which may know its highest use from readings alone.
func readPool(t *testing.T, rt *fencepost.Runtime) {
	t.Helper()
	_, err := rt.PoolStats()
	e2e.Succeed(t, "reading the pool", err)
}

func TestTrimPoolGivesMemoryBack(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	s := e2e.Lease(t, rt, "s")
	peak := e2e.Allocate(t, rt, 64<<20, s.ID(), "peak")
	readPool(t, rt)
	e2e.Free(t, rt, peak)
	e2e.Succeed(t, "draining", rt.Drain(t.Context()))
	if pool, err := rt.PoolStats(); err != nil || pool.Reserved < 64<<20 {
		t.Fatalf("the pool holds %d bytes, %v", pool.Reserved, err)
	}
	e2e.Succeed(t, "trimming", rt.TrimPool(t.Context(), 4<<20))
	e2e.Succeed(t, "reaping", rt.ReapPending(t.Context()))
	pool, err := rt.PoolStats()
	if err != nil || pool.Reserved > 4<<20 || pool.ReservedHigh < 64<<20 || pool.UsedHigh < 64<<20 {
		t.Errorf("the pool holds %d bytes of at most %d, used at most %d, %v", pool.Reserved, pool.ReservedHigh, pool.UsedHigh, err)
	}
}

func TestStatsHaveThePoolsHighMarks(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	peak := e2e.Allocate(t, rt, 8<<20, core.DefaultStream, "peak")
	readPool(t, rt)
	e2e.Free(t, rt, peak)
	e2e.Succeed(t, "draining", rt.Drain(t.Context()))
	if st := rt.Stats(); st.ReservedHigh < 8<<20 || st.PoolUsedHigh < 8<<20 || st.PoolUsed >= 8<<20 {
		t.Errorf("%+v", st)
	}
}

func TestADirectStackHasNoPoolToTrim(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Resource: fencepost.Direct, Sim: sim.Config{Bytes: 64 << 20}})
	expect.Error(t, rt.TrimPool(t.Context(), 0), errors.ErrUnsupported)
}
