package ledger

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// A record is used again: the block that it was of when it was found may be gone, and
// it may be another's by the time it is shown, whose turn is yet to come.
func TestAListingMeetsABlockOnceThatGotARecordAlreadyFound(t *testing.T) {
	l := newLedger(new(atomic.Int64), 8)
	l.records.Subscribe(nil, path.Listener{Hear: func(*path.Record, core.Block) {}})
	newest := core.Generation(0)
	enter := func() {
		newest++
		l.enter(core.Block{ID: core.BlockID{Generation: newest, Ptr: uint64(newest) << 12, AllocStream: 1}, Bytes: 1, Align: 1, State: core.Live})
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
			l.released(core.BlockID{Generation: g, AllocStream: 1})
			enter()
		}
	}
	for g, n := range met {
		if n != 1 {
			t.Errorf("generation %d was listed %d times", g, n)
		}
	}
}

// Blocks come and go while the index of addresses is built: whatever is live at a question is found by it.
func TestAddressesAreFoundWhileTheIndexIsBuilt(t *testing.T) {
	l := newLedger(new(atomic.Int64), 8)
	l.records.Subscribe(nil, path.Listener{Hear: func(*path.Record, core.Block) {}})
	const streams, each = 4, 2000
	block := func(stream core.StreamID, i int) core.Block {
		id := core.BlockID{Generation: core.NextGeneration(), Ptr: uint64(stream)<<40 | uint64(i)<<12, AllocStream: stream}
		return core.Block{ID: id, Bytes: 4096, Align: 1, State: core.Live}
	}
	var kept []core.Block
	for i := range each {
		kept = append(kept, block(9, i))
		l.enter(kept[i])
	}
	var group sync.WaitGroup
	for stream := range core.StreamID(streams) {
		group.Go(func() {
			var lane sync.Mutex
			var own *Shard
			for i := range each {
				b := block(stream, i)
				switch {
				case stream%2 == 0:
					l.enter(b)
				case own == nil:
					own = l.AddLane(&lane)
					fallthrough
				default:
					of := l.records.Enter(&b)
					lane.Lock()
					l.Enter(own, of, &b, 1)
					lane.Unlock()
				}
				if i%100 == 0 {
					if live, _ := l.Owners(b.ID.Ptr + 4095); live == nil || live.ID != b.ID {
						t.Errorf("%v is live, and its address is in %v", b.ID, live)
					}
				}
				if !l.released(b.ID) {
					t.Errorf("%v was not known", b.ID)
				}
			}
		})
	}
	group.Wait()
	for _, b := range kept {
		if live, _ := l.Owners(b.ID.Ptr); live == nil || live.ID != b.ID {
			t.Fatalf("%v is live, and its address is in %v", b.ID, live)
		}
	}
	for _, s := range l.all() {
		if n := s.index.n; n > each+8 {
			t.Errorf("%d blocks in the index of a shard", n)
		}
	}
}

// A lane that is added while the ledger begins to hold the gate open, or ends that, does as the others do.
func TestALaneThatIsAddedMeanwhileCountsAsTheOthers(t *testing.T) {
	var gate atomic.Int64
	l := newLedger(&gate, 8)
	for i := range 20 {
		counts := i%2 == 0
		var group sync.WaitGroup
		var lane sync.Mutex
		var s *Shard
		l.sharing.Lock() // so that both are under way at once
		for _, f := range []func(){func() { s = l.AddLane(&lane) }, func() { l.CountLive(counts) }} {
			group.Go(f)
			time.Sleep(time.Millisecond)
		}
		l.sharing.Unlock()
		group.Wait()
		b := core.Block{ID: core.BlockID{Generation: core.NextGeneration()}, State: core.Live}
		before, of := gate.Load(), l.records.Enter(&b)
		lane.Lock()
		rec := l.Enter(s, of, &b, 1)
		if opened := gate.Load() - before; (opened == 1) != counts {
			t.Fatalf("round %d: blocks hold the gate open: %t; one of the new lane added %d", i, counts, opened)
		}
		l.CloseIn(s, rec, b.ID)
		lane.Unlock()
		if gate.Load() != before {
			t.Fatalf("round %d: the gate is at %d", i, gate.Load()-before)
		}
	}
}
