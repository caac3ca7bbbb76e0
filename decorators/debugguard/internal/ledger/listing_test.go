package ledger

import (
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// A record is pooled: the block that it was of when it was found may be gone, and
// it may be another's by the time it is shown, whose turn is yet to come.
func TestAListingMeetsABlockOnceThatGotARecordAlreadyFound(t *testing.T) {
	l := New(new(atomic.Int64), Options{Tombstones: 8, StackBytes: 512 << 10})
	newest := core.Generation(0)
	enter := func() {
		newest++
		l.Enter(&core.Block{ID: core.BlockID{Generation: newest, Ptr: uint64(newest) << 12, AllocStream: 1}, Bytes: 1, Align: 1, State: core.Live}, 1)
	}
	for range 1000 {
		enter()
	}
	there, met := newest, map[core.Generation]int{}
	for g, rec := range l.All {
		if info := l.Info(g, rec); info.Block.ID.Generation != 0 {
			met[info.Block.ID.Generation]++
		}
		for g := core.Generation(1); g <= there && newest < 2*there; g++ { // while the first is shown all are replaced
			l.closeIn(l.shard(1), g)
			enter()
		}
	}
	for g, n := range met {
		if n != 1 {
			t.Errorf("generation %d was listed %d times", g, n)
		}
	}
}
