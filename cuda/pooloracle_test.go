package cuda_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// wantFound fails unless the oracle found things of one kind alone, and forgets them.
func (b *bench) wantFound(kind sim.Kind) {
	b.Helper()
	must(b, b.Sim.Synchronize())
	found := b.Sim.Findings()
	b.Sim.ResetFindings()
	if len(found) == 0 {
		b.Errorf("the oracle found nothing, want %s", kind)
	}
	for _, f := range found {
		equal(b, f.Text, f.Kind, kind)
	}
}

// Work that no launch declares is what the runtime cannot order: the oracle sees it in the
// blocks of the pool as in those of the driver.
func TestTheOracleSeesBugsInThePoolsBlocks(t *testing.T) {
	b := newBench(t, pooled(0))
	s := b.leases(2)
	block, neighbour := b.alloc(s[0], 1000), b.alloc(s[0], 1000)
	touch := func(at uint64, bytes uint64, on *cuda.Lease) { must(t, b.Sim.MemsetAsync(at, 1, bytes, on.Handle())) }

	touch(block.ID.Ptr, 1001, s[0])
	b.wantFound(sim.OutOfBounds)

	late := b.alloc(s[0], 1000)
	touch(late.ID.Ptr, 8, s[1])
	b.wantFound(sim.UseBeforeAlloc)

	b.free(block)
	touch(block.ID.Ptr, 8, s[0])
	b.wantFound(sim.UseAfterFree)

	b.free(neighbour, late)
}

// A steal whose wait does not happen is seen before anybody uses the memory. That those
// which wait, takeovers and remaps are not accused each test of the pool shows: its end
// demands that nothing was found.
func TestTheOracleSeesThatAStealDoesNotWait(t *testing.T) {
	b := newBench(t, pooled(1))
	s := b.leases(2)
	first := b.alloc(s[0], poolPage)
	release := b.hold(s[0])
	b.launch(s[0], writes(first))
	b.free(first)
	b.Sim.DropWaitAt(1)
	second := b.alloc(s[1], poolPage)
	b.counts(moves{Growths: 1, Steals: 1})
	release()
	b.wantFound(sim.FreeRace)
	b.free(second)
}
