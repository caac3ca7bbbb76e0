package budget

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// laneTable finds the lane of a stream. Stream ids are never reused, so
// lanes of old leases are dropped once they hold nothing: each time the table
// reaches a size that doubles with what survives, so that dropping costs a
// constant per lane made and the table is never more than twice what is in
// use, or 64.
//
// A lane is found through a small direct-mapped cache without a lock of the
// table. One that was dropped meanwhile says so under its own lock, and the
// finder asks again.
type laneTable struct {
	ledger   *ledger
	tags     *tagNews
	upstream core.Resource
	cache    [cacheSlots]atomic.Pointer[lane]

	mu      sync.Mutex
	lanes   map[core.StreamID]*lane
	sweepAt int
}

const (
	cacheSlots = 64
	minSweepAt = 64
)

func (t *laneTable) init(l *ledger, tags *tagNews, upstream core.Resource) {
	t.ledger, t.tags, t.upstream = l, tags, upstream
	t.lanes, t.sweepAt = map[core.StreamID]*lane{}, minSweepAt
}

func (t *laneTable) slot(id core.StreamID) *atomic.Pointer[lane] {
	return &t.cache[uint64(id)%cacheSlots]
}

// peek returns the lane of id with its lock held, nil if there is none.
func (t *laneTable) peek(id core.StreamID) *lane {
	for {
		l := t.find(id)
		if l == nil || t.lock(l) {
			return l
		}
	}
}

// enter returns the lane of id with its lock held, made if need be.
func (t *laneTable) enter(id core.StreamID) *lane {
	for {
		l := t.slot(id).Load()
		if l == nil || l.stream != id {
			l = t.obtain(id)
		}
		if t.lock(l) {
			return l
		}
	}
}

// lock locks l unless it was dropped.
func (t *laneTable) lock(l *lane) bool {
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		t.slot(l.stream).CompareAndSwap(l, nil)
		return false
	}
	return true
}

func (t *laneTable) find(id core.StreamID) *lane {
	if l := t.slot(id).Load(); l != nil && l.stream == id {
		return l
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lanes[id]
}

func (t *laneTable) obtain(id core.StreamID) *lane {
	l := t.find(id)
	if l == nil {
		l = t.add(id, t.upstream.FreedOn(id).Queued)
	}
	t.slot(id).Store(l)
	return l
}

func (t *laneTable) add(id core.StreamID, base uint64) *lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lanes[id]; l != nil {
		return l
	}
	if len(t.lanes) >= t.sweepAt {
		t.sweep()
	}
	l := &lane{stream: id, base: base, general: till{purse: t.ledger}, tallies: map[core.Tag]*tally{}, tags: t.tags}
	t.lanes[id] = l
	return l
}

// sweep drops the lanes that hold nothing; t.mu must be held.
func (t *laneTable) sweep() {
	for id, l := range t.lanes {
		l.mu.Lock()
		l.dead = l.grants == 0
		l.mu.Unlock()
		if l.dead {
			delete(t.lanes, id)
			t.slot(id).CompareAndSwap(l, nil)
		}
	}
	t.sweepAt = max(minSweepAt, 2*len(t.lanes))
}

// list is all lanes.
func (t *laneTable) list() []*lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.lanes))
}

// each calls visit with every lane, locked.
func (t *laneTable) each(visit func(*lane)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lanes {
		l.mu.Lock()
		visit(l)
		l.mu.Unlock()
	}
}
