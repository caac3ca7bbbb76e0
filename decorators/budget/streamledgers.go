package budget

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// streamLedgers finds the ledger of a stream. Stream ids are never reused, so
// ledgers of old leases are dropped once they hold nothing: each time the table
// reaches a size that doubles with what survives, so that dropping costs a
// constant for each ledger made, and the table is never larger than twice what is
// in use, or 64.
//
// A ledger is found through a small direct-mapped cache without the table's lock.
// One that was dropped meanwhile says so under its own lock, and the finder asks
// again.
type streamLedgers struct {
	ledger   *ledger
	tags     *tagNews
	upstream core.Resource
	// path is the budget's.
	path  *path.Path
	cache [cacheSlots]atomic.Pointer[streamLedger]

	mu      sync.Mutex
	byID    map[core.StreamID]*streamLedger
	sweepAt int
}

const (
	cacheSlots = 64
	minSweepAt = 64
)

func (t *streamLedgers) begin(l *ledger, tags *tagNews, upstream core.Resource) {
	t.ledger, t.tags, t.upstream = l, tags, upstream
	t.byID, t.sweepAt = map[core.StreamID]*streamLedger{}, minSweepAt
}

func (t *streamLedgers) slot(id core.StreamID) *atomic.Pointer[streamLedger] {
	return &t.cache[uint64(id)%cacheSlots]
}

// peek returns the ledger of a stream with its lock held, nil if there is none.
func (t *streamLedgers) peek(id core.StreamID) *streamLedger {
	for {
		if l := t.find(id); l == nil || t.lock(l) {
			return l
		}
	}
}

// enter returns the ledger of a stream with its lock held; it makes one if there
// is none.
func (t *streamLedgers) enter(id core.StreamID) *streamLedger {
	for {
		l := t.find(id)
		if l == nil {
			l = t.add(id, t.upstream.FreedOn(id).Queued)
		}
		if t.lock(l) {
			return l
		}
	}
}

// lock locks l unless it was dropped.
func (t *streamLedgers) lock(l *streamLedger) bool {
	l.mu.Lock()
	if l.dropped {
		l.mu.Unlock()
		t.slot(l.stream).CompareAndSwap(l, nil)
		return false
	}
	return true
}

func (t *streamLedgers) find(id core.StreamID) *streamLedger {
	if l := t.slot(id).Load(); l != nil && l.stream == id {
		return l
	}
	return t.search(id)
}

func (t *streamLedgers) search(id core.StreamID) *streamLedger {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.byID[id]
	if l != nil {
		t.slot(id).Store(l)
	}
	return l
}

// add makes the ledger of a stream, unless somebody has meanwhile.
func (t *streamLedgers) add(id core.StreamID, base uint64) *streamLedger {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byID[id]; l != nil {
		return l
	}
	if len(t.byID) >= t.sweepAt {
		t.sweep()
	}
	l := &streamLedger{stream: id, mu: t.path.Lane(id), base: base, credit: credit{ledger: t.ledger}, tallies: map[core.Tag]*tally{}, tags: t.tags}
	l.general.source = &l.credit
	t.byID[id] = l
	return l
}

// sweep drops the stream ledgers that hold nothing; t.mu must be held.
func (t *streamLedgers) sweep() {
	for id, l := range t.byID {
		l.mu.Lock()
		if l.dropped = l.grants == 0; l.dropped {
			l.credit.recall()
		}
		l.mu.Unlock()
		if l.dropped {
			delete(t.byID, id)
			t.slot(id).CompareAndSwap(l, nil)
		}
	}
	t.sweepAt = max(minSweepAt, 2*len(t.byID))
}

// list is all stream ledgers.
func (t *streamLedgers) list() []*streamLedger {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byID))
}
