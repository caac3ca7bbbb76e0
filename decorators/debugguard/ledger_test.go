package debugguard

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestNamesKeepTheirNumbers(t *testing.T) {
	n := newNames()
	if n.number("") != 0 || n.name(0) != "" {
		t.Error("the empty name is not number 0")
	}
	const names = 1000 // so that the table grows
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range names {
				text := fmt.Sprint("launch ", i)
				if got := n.name(n.number(text)); got != text {
					t.Errorf("%q came back as %q", text, got)
				}
			}
		})
	}
	group.Wait()
	if got := len(*n.known.Load()); got != names+2 {
		t.Errorf("%d names have numbers, want %d and two reserved ones", got, names)
	}
}

func TestNamesAreBounded(t *testing.T) {
	n := newNames()
	for i := range maxNames + 10 {
		n.number(fmt.Sprint(i))
	}
	if got := n.name(n.number("one too many")); got != otherName || len(*n.known.Load()) != maxNames {
		t.Errorf("a name beyond the limit is kept as %q, %d are kept", got, len(*n.known.Load()))
	}
	if got := n.name(n.number("17")); got != "17" {
		t.Errorf("a name from before the limit is %q", got)
	}
}

func TestTheCoarseClockRunsUntilItIsStopped(t *testing.T) {
	c := newCoarseClock(time.Now)
	c.start()
	defer c.stop()
	first := c.instant()
	for until := time.Now().Add(10 * time.Second); c.instant() == first && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if now := c.time(c.instant()); c.instant() == first || time.Since(now) > 5*time.Second || time.Since(now) < -resolution {
		t.Errorf("after %d ticks the clock says %v", c.instant()-first, now)
	}
	c.stop()
	for until := time.Now().Add(10 * time.Second); c.runs.Load() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if c.runs.Load() {
		t.Error("the clock goes on after it was stopped")
	}
	c.start()
	if !c.runs.Load() {
		t.Error("the clock cannot be started again")
	}
	if (c.time(0) != time.Time{}) {
		t.Error("no instant has a time")
	}
}

func TestAClockThatNobodyHasEnds(t *testing.T) {
	var readings atomic.Int64
	newCoarseClock(func() time.Time { readings.Add(1); return time.Now() }).start()
	for range 100 {
		runtime.GC()
		before := readings.Load()
		time.Sleep(3 * resolution)
		if readings.Load() == before {
			return
		}
	}
	t.Error("the clock is read for nobody")
}

func TestAnOperationReadsNoClock(t *testing.T) {
	var readings atomic.Int64
	c := newCoarseClock(func() time.Time { readings.Add(1); return time.Time{} })
	readings.Store(0)
	for range 1000 {
		c.instant()
	}
	if n := readings.Load(); n != 0 {
		t.Errorf("1000 instants read the clock %d times", n)
	}
}

func TestEqualStacksShareTheirMemory(t *testing.T) {
	d := newDepot()
	var stacks []core.Stack
	for range 2 {
		stacks = append(stacks, d.capture(0))
	}
	if len(stacks[0]) == 0 || &stacks[0][0] != &stacks[1][0] {
		t.Error("two captures of one place are kept twice")
	}
	if other := d.capture(0); &other[0] == &stacks[0][0] || len(d.known) != 2 {
		t.Errorf("two places share a stack, %d are known", len(d.known))
	}
}

func TestLargeBlocksStacksAreRationed(t *testing.T) {
	d := newDepot()
	for tick := instant(1); tick < 4; tick++ {
		n := 0
		for range 10 * stacksPerTick {
			if d.affords(tick) {
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
	var live []*record
	for range 3000 {
		if len(live) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(live))
			a.remove(live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		} else {
			rec := &record{ptr: rng.Uint64N(1 << 20), bytes: 1 + rng.Uint64N(1<<rng.IntN(19))}
			a.enter(rec)
			live = append(live, rec)
		}
		ptr := rng.Uint64N(1 << 21)
		found := map[*record]bool{}
		a.at(ptr, func(rec *record) {
			if found[rec] {
				t.Fatalf("seed %d: %#x is found twice in one block", seed, ptr)
			}
			found[rec] = true
		})
		for _, rec := range live {
			if rec.contains(ptr) != found[rec] {
				t.Fatalf("seed %d: %#x in %d bytes at %#x: found %v", seed, ptr, rec.bytes, rec.ptr, found[rec])
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
	l := newLedger(&gate, ledgerOptions{tombstones: 64, stackBytes: 512 << 10, now: time.Now})
	var shared [8]atomic.Uint64 // generations that may be used by anybody
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range 3000 {
				id := core.BlockID{Ptr: uint64(i%50) << 12, Generation: core.NextGeneration(), AllocStream: core.StreamID(g % 3)}
				rec, _ := l.enter(&core.Block{ID: id, Bytes: 4096, Align: 256, State: core.Live, Tag: "load"})
				shared[rng.IntN(len(shared))].Store(uint64(id.Generation))
				other := core.BlockID{Generation: core.Generation(shared[rng.IntN(len(shared))].Load()), AllocStream: core.StreamID(rng.IntN(3))}
				if found := l.lock(other); found != nil {
					if found.generation() != other.Generation || found.state() == core.Freed {
						t.Errorf("looked for %v, got %v in state %v", other.Generation, found.generation(), found.state())
					}
					found.note(use{launch: uint64(i)})
					found.mu.Unlock()
				}
				if i%100 == 0 {
					l.owners(id.Ptr)
					l.heir(core.Block{ID: id, Bytes: 1})
					l.countLive(i%200 == 0)
				}
				if !rec.retire(id.Generation) {
					t.Errorf("%v could not be retired", id)
				}
				l.close(rec, id.Generation)
				if l.get(id) != nil {
					t.Errorf("%v is known after it was closed", id)
				}
			}
		})
	}
	group.Wait()
	l.countLive(true)
	if live, buried := l.size(); live != 0 || buried > 64 || buried == 0 || gate.Load() != 0 {
		t.Errorf("%d live, %d remembered, gate %d", live, buried, gate.Load())
	}
}

func TestTheLedgerForgetsTheOldestTombstone(t *testing.T) {
	var gate atomic.Int64
	l := newLedger(&gate, ledgerOptions{tombstones: 4, stackBytes: 512 << 10, now: time.Now})
	bury := func(stream core.StreamID, n int) (ids []core.BlockID) {
		for range n {
			id := core.BlockID{Generation: core.NextGeneration(), AllocStream: stream}
			rec, _ := l.enter(&core.Block{ID: id, State: core.Live})
			l.close(rec, id.Generation)
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
	if !l.mayForget(ids[1].Generation) || l.mayForget(ids[2].Generation) {
		t.Error("what was forgotten is not known")
	}
	bury(2, 6) // the shards share the limit
	if live, buried := l.size(); live != 0 || buried != 4 || gate.Load() != 0 {
		t.Errorf("%d live, %d remembered, gate %d", live, buried, gate.Load())
	}
	if l.tombstone(ids[3]) != nil || l.tombstone(ids[4]) == nil {
		t.Error("the shard in use before kept more than its share, or less")
	}
}
