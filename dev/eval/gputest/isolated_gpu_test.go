package gputest

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// isolating reports whether the device maps memory. One that does not must say
// so when it is asked.
func (b *bench) isolating() bool {
	b.Helper()
	if b.Guard().Features().Has(core.Isolation) {
		return true
	}
	_, err := b.Allocate(ctx, core.Request{Bytes: 64, Isolated: true})
	if !errors.Is(err, errors.ErrUnsupported) {
		b.Errorf("without the feature an isolated block is answered with %v", err)
	}
	b.Log("the device maps no memory")
	return false
}

func (b *bench) isolate(on *cuda.Lease, n int, tag core.Tag) *words {
	b.Helper()
	w, err := cuda.Alloc[uint64](ctx, b.Memory(), n, cuda.AllocOptions{Stream: on.ID(), Tag: tag, Isolated: true})
	must(b, err)
	return w
}

// The first round is not measured: the driver takes memory of its own for the
// first launch of a kernel.
func TestIsolatedBlocksGiveTheirMemoryBackAndKeepTheirAddresses(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	if !b.isolating() {
		return
	}
	x, y := b.lease("x"), b.lease("y")
	sum, err := b.counter(y)
	must(t, err)
	n := scaled(32<<20, 1<<20) / wordBytes
	seen := map[uint64]bool{}
	var before int64
	for round := range scaled(50, 5) {
		w := b.isolate(x, n, "isolated")
		if seen[w.Ptr()] {
			t.Fatalf("the address %#x came again", w.Ptr())
		}
		seen[w.Ptr()] = true
		if got := b.Stats().Isolated; got < uint64(n*wordBytes) {
			t.Errorf("%d bytes are mapped for a block of %d", got, n*wordBytes)
		}
		must(t, b.doWrite(x, w, uint64(round)))
		must(t, b.doCheck(y, w, uint64(round), sum))
		must(t, w.Free(ctx))
		must(t, b.Drain(ctx))
		if lacks := b.foreign(); round == 0 { // the pool maps pages of its own ahead meanwhile
			before = lacks
		} else if lacks > before {
			t.Fatalf("round %d: %d bytes are missing from the device", round, lacks-before)
		}
		if got := b.Stats().Isolated; got != 0 {
			t.Fatalf("round %d: %d bytes are mapped after a drain", round, got)
		}
	}
	b.right(y, sum)
	if kept := b.Stats().IsolatedAddresses; kept < uint64(len(seen)*n*wordBytes) {
		t.Errorf("%d bytes of addresses are kept of %d blocks", kept, len(seen))
	}
}

// An unmap that does not wait for the work on a block would lose the context.
func TestIsolatedBlocksAreUnmappedBehindTheirLastUse(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	if !b.isolating() {
		return
	}
	x, y := b.lease("x"), b.lease("y")
	for range scaled(100, 10) {
		w := b.isolate(x, 1<<12, "isolated")
		must(t, b.delay.Enqueue(y.Handle(), cuda.Blocks1D(1, 1), driver.U64(2_000_000))) // 2 ms
		must(t, b.doWrite(y, w, 1))
		must(t, b.doWrite(x, w, 2))
		must(t, w.Free(ctx))
		must(t, b.ReapPending(ctx))
	}
	must(t, b.Drain(ctx))
	if h := b.Health(); !h.OK {
		t.Errorf("the health is %+v", h)
	}
}

func TestTheGuardHuntsByUnmapping(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "hunt:unmap"})
	if !b.isolating() {
		return
	}
	seed := firstSeed(t)
	for i := range uint64(scaled(5, 1)) {
		if wrong := b.runProgram(seed + i); wrong != 0 {
			t.Errorf("program with seed %d: %d words are wrong", seed+i, wrong)
		}
	}
	must(t, b.Drain(ctx))
	if g := b.Guard().GuardStats(); g.Isolated == 0 || g.NotIsolated != 0 || g.Verified == 0 || g.Unchecked != 0 || g.Findings != 0 {
		t.Errorf("the guard: %+v", g)
	}
	if mapped := b.Stats().Isolated; mapped != 0 {
		t.Errorf("%d bytes are mapped after a drain", mapped)
	}
}

func TestTheGuardFindsAWriteBehindAnIsolatedBlock(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "hunt:unmap"})
	if !b.isolating() {
		return
	}
	s := b.lease("test")
	victim := b.alloc(s, 1000, "victim")
	must(t, b.outOfBounds.Launch(ctx, b.Runtime, s, grid(1000), []core.Use{victim.Use(core.Write)},
		victim.Arg(), driver.U64(1000), driver.U64(4)))
	must(t, victim.Free(ctx))
	b.within(b.single(names.FindingOutOfBoundsWrite, "victim"), 1000*wordBytes, 1004*wordBytes)
}

// The context is lost with it, so a process of its own commits it.
func TestALateAccessOfAnIsolatedBlockFaults(t *testing.T) {
	provokes(t, "an illegal access")
	gpu(t)
	out, err := self(t, nil, plantVariable+"=late")
	t.Logf("the process:\n%s", out)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitLost {
		t.Errorf("it ended with %v, want exit code %d", err, exitLost)
	}
}
