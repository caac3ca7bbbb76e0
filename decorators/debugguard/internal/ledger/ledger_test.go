package ledger

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// newLedger is a ledger over somebody's own resource, whose blocks the test makes up.
func newLedger(gate *atomic.Int64, tombstones int) *Ledger {
	fake := coretest.NewFake(0)
	records, part := path.Join[Part](path.Over(fake, true), fake)
	return New(gate, records, part, tombstones)
}

// lanes are the shards that tests enter blocks in: one for each stream.
var lanes sync.Map

type lane struct {
	l      *Ledger
	stream core.StreamID
}

func (l *Ledger) enter(b core.Block) *Record {
	of, made := l.records.Enter(&b), new(sync.Mutex)
	mu, known := lanes.LoadOrStore(lane{l, b.ID.AllocStream}, made)
	if !known {
		lanes.Store(mu, l.AddLane(made))
	}
	s, ok := lanes.Load(mu)
	for !ok { // another goroutine is adding it
		s, ok = lanes.Load(mu)
	}
	mu.(*sync.Mutex).Lock()
	defer mu.(*sync.Mutex).Unlock()
	return l.Enter(s.(*Shard), of, &b, 1)
}

// released is the notice of a block: its record may be another's from then on.
func (l *Ledger) released(id core.BlockID) bool {
	closed := l.CloseBlock(l.records.Find(id), id) != nil
	l.records.Book.(core.Listener).Released(core.Block{ID: id})
	return closed
}

func TestNamesKeepTheirNumbers(t *testing.T) {
	n := newNames()
	if n.Number("") != 0 || n.name(0) != "" {
		t.Error("the empty name is not number 0")
	}
	const names = 1000 // so that the table grows
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range names {
				text := fmt.Sprint("launch ", i)
				if got := n.name(n.Number(text)); got != text {
					t.Errorf("%q came back as %q", text, got)
				}
			}
		})
	}
	group.Wait()
	if got := len(*n.texts.Load()); got != names+2 {
		t.Errorf("%d names have numbers, want %d and two reserved ones", got, names)
	}
}

func TestNamesAreBounded(t *testing.T) {
	n := newNames()
	for i := range maxNames + 10 {
		n.Number(fmt.Sprint(i))
	}
	if got := n.name(n.Number("one too many")); got != otherName || len(*n.texts.Load()) != maxNames {
		t.Errorf("a name beyond the limit is kept as %q, %d are kept", got, len(*n.texts.Load()))
	}
	if got := n.name(n.Number("17")); got != "17" {
		t.Errorf("a name from before the limit is %q", got)
	}
}

func TestEqualStacksShareTheirMemory(t *testing.T) {
	d := newDepot()
	var stacks []core.Stack
	for range 2 {
		stacks = append(stacks, d.Capture(0))
	}
	if len(stacks[0]) == 0 || &stacks[0][0] != &stacks[1][0] {
		t.Error("two captures of one place are kept twice")
	}
	if other := d.Capture(0); &other[0] == &stacks[0][0] || len(d.known) != 2 {
		t.Errorf("two places share a stack, %d are known", len(d.known))
	}
}

func TestLargeBlocksStacksAreRationed(t *testing.T) {
	d := newDepot()
	for tick := range monotime.Instant(4) {
		n := 0
		for range 10 * stacksPerTick {
			if d.Affords(tick * monotime.Instant(Tick)) {
				n++
			}
		}
		if n != stacksPerTick {
			t.Errorf("tick %d: %d stacks, want %d", tick, n, stacksPerTick)
		}
	}
}

// Blocks of all sizes at random places are found by every address in them, and
// by none outside, while others come and go.
func TestTheIndexFindsExactlyTheBlocksOfAnAddress(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 0))
	var a addresses
	var live []*Record
	for range 3000 {
		if len(live) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(live))
			a.remove(live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		} else {
			rec := &Record{Ptr: rng.Uint64N(1 << 20), Bytes: 1 + rng.Uint64N(1<<rng.IntN(19))}
			a.enter(rec)
			live = append(live, rec)
		}
		ptr := rng.Uint64N(1 << 21)
		found := map[*Record]bool{}
		a.at(ptr, func(rec *Record) {
			if found[rec] {
				t.Fatalf("seed %d: %#x is found twice in one block", seed, ptr)
			}
			found[rec] = true
		})
		for _, rec := range live {
			if rec.Contains(ptr) != found[rec] {
				t.Fatalf("seed %d: %#x in %d bytes at %#x: found %v", seed, ptr, rec.Bytes, rec.Ptr, found[rec])
			}
			delete(found, rec)
		}
		if len(found) != 0 {
			t.Fatalf("seed %d: %#x is found in %d blocks that are gone", seed, ptr, len(found))
		}
	}
}

// TestTheLedgerKeepsItsBooksUnderLoad: many goroutines open and close blocks on
// few streams, note uses of each other's, and ask for addresses.
func TestTheLedgerKeepsItsBooksUnderLoad(t *testing.T) {
	var gate atomic.Int64
	l := newLedger(&gate, 64)
	l.records.Subscribe(nil, path.Listener{Hear: func(*path.Record, core.Block) {}})
	var shared [8]atomic.Uint64 // generations that may be used by anybody
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range 3000 {
				id := core.BlockID{Ptr: uint64(i%50) << 12, Generation: core.NextGeneration(), AllocStream: core.StreamID(g % 3)}
				rec := l.enter(core.Block{ID: id, Bytes: 4096, Align: 256, State: core.Live, Tag: "load"})
				shared[rng.IntN(len(shared))].Store(uint64(id.Generation))
				other := core.BlockID{Generation: core.Generation(shared[rng.IntN(len(shared))].Load()), AllocStream: core.StreamID(rng.IntN(3))}
				if found := l.Lock(other); found != nil {
					if found.Generation() != other.Generation || found.State() == core.Freed {
						t.Errorf("looked for %v, got %v in state %v", other.Generation, found.Generation(), found.State())
					}
					found.Note(l.Pack(uint64(i), "", 0, core.Read, 1))
					found.Unlock()
				}
				if i%100 == 0 {
					l.Owners(id.Ptr)
					l.Heir(core.Block{ID: id, Bytes: 1})
					l.CountLive(i%200 == 0)
				}
				if !rec.Retire(id.Generation) {
					t.Errorf("%v could not be retired", id)
				}
				if !l.released(id) || l.Close(rec, id) || l.Get(id) != nil {
					t.Errorf("%v was not closed once, or is known after that", id)
				}
			}
		})
	}
	group.Wait()
	for range 3 { // of which each is told whether it counts
		l.AddLane(new(sync.Mutex))
	}
	l.CountLive(true)
	if live, buried := l.Size(); live != 0 || buried > 64 || buried == 0 || gate.Load() != 0 {
		t.Errorf("%d live, %d remembered, gate %d", live, buried, gate.Load())
	}
}

func TestTheLedgerForgetsTheOldestTombstone(t *testing.T) {
	var gate atomic.Int64
	l := newLedger(&gate, 4)
	bury := func(stream core.StreamID, n int) (ids []core.BlockID) {
		for range n {
			id := core.BlockID{Generation: core.NextGeneration(), AllocStream: stream}
			l.Close(l.enter(core.Block{ID: id, State: core.Live}), id)
			ids = append(ids, id)
		}
		return ids
	}
	ids := bury(1, 6)
	for i, id := range ids {
		if known := l.tombstone(id) != nil; known != (i >= 2) {
			t.Errorf("tombstone %d: known %v", i, known)
		}
	}
	if !l.MayForget(ids[1].Generation) || l.MayForget(ids[2].Generation) {
		t.Error("what was forgotten is not known")
	}
	bury(2, 6) // the shards share the limit
	if live, buried := l.Size(); live != 0 || buried != 4 || gate.Load() != 0 {
		t.Errorf("%d live, %d remembered, gate %d", live, buried, gate.Load())
	}
	if l.tombstone(ids[3]) != nil || l.tombstone(ids[4]) == nil {
		t.Error("the shard in use before kept more than its share, or less")
	}
}
