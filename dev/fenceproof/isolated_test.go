package fenceproof

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// TestIsolatedBlocksAreUnmappedBehindEveryUse runs every small program under
// every schedule with blocks that have mappings of their own: none is unmapped
// before the device has done what uses it, all are in the end, and no block is
// called gone before. An unmap lies on no stream, so the oracle is not asked.
func TestIsolatedBlocksAreUnmappedBehindEveryUse(t *testing.T) {
	b := proof.Bound{Bounds: program.Bounds{Streams: 2, Blocks: 2, Ops: 5, Kinds: []program.Kind{program.Launch, program.Free, program.Reap}}, Goroutines: 2}
	if raceDetector || testing.Short() {
		b.Ops = 4
	}
	r, err := proof.NewRunner(proof.Config{Streams: b.Streams, Over: proof.Isolated})
	if err != nil {
		t.Fatal(err)
	}
	programs := uint64(0)
	b.Each(1, func(p program.Program) bool {
		programs++
		proof.EachSchedule(p, b.Goroutines, func(s proof.Schedule) bool {
			_, err = r.Check(p, s)
			return err == nil
		})
		return err == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	expect.Success(t, r.Close())
	if floor := isolatedFloors[b.Ops]; programs < floor {
		t.Errorf("%d programs were run, at least %d must be", programs, floor)
	}
}
