package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/quick"
)

// LaneCalls counts the allocations and frees that were served by the quick path of one
// lane, whose lock guards it: so counting one writes no word that others write and needs no
// atomic operation.
type LaneCalls struct {
	lane     *quick.Lane
	allocate quickCells
	free     quickCells
}

// quickCells are opCells that a lock guards.
type quickCells struct {
	cells       [cells]uint64
	nanoseconds uint64
}

// laneCalls is all LaneCalls of a [Calls].
type laneCalls struct {
	mu  sync.Mutex
	all []*LaneCalls
}

// OfLane returns counters of the calls that one lane serves, for good. It is called once for
// each lane.
func (c *Calls) OfLane(lane *quick.Lane) *LaneCalls {
	l := &LaneCalls{lane: lane}
	c.lanes.mu.Lock()
	defer c.lanes.mu.Unlock()
	c.lanes.all = append(c.lanes.all, l)
	return l
}

// NoteAllocate counts an allocation that succeeded and took some time, in no sampled trace. The
// lane must be locked.
func (l *LaneCalls) NoteAllocate(took time.Duration) { l.allocate.note(took) }

// NoteDeallocate is NoteAllocate for a free.
func (l *LaneCalls) NoteDeallocate(took time.Duration) { l.free.note(took) }

func (q *quickCells) note(took time.Duration) {
	q.cells[grid.cellOf(uint64(took))]++
	q.nanoseconds += uint64(took)
}

// addTo adds what the lanes have counted.
func (c *laneCalls) addTo(latencies []latency) {
	c.mu.Lock()
	all := slices.Clone(c.all)
	c.mu.Unlock()
	for _, l := range all {
		l.lane.Lock()
		allocate, free := l.allocate, l.free
		l.lane.Unlock()
		latencies[core.OpAllocate].add(&allocate)
		latencies[core.OpDeallocate].add(&free)
	}
}

func (l *latency) add(from *quickCells) {
	for i, n := range from.cells {
		l.cells[i] += n
		l.calls += n
	}
	l.nanoseconds += from.nanoseconds
}
