package budget

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// streamLedgers finds the ledger of a stream. Where nothing is lent in a stream's order, all leases of a physical stream
// have one ledger, which is a part of its lane. Else, and for streams without a lane of their own, each
// stream id has one. Those are never reused, so
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
	lends    bool
	// path is the budget's.
	path  *path.Path
	cache [cacheSlots]atomic.Pointer[streamLedger]

	mu      sync.Mutex
	byID    map[core.StreamID]*streamLedger
	lanes   []*streamLedger
	sweepAt int
}

const (
	cacheSlots = 64
	minSweepAt = 64
)

func (t *streamLedgers) begin(l *ledger, tags *tagNews, upstream core.Resource, lends bool) {
	t.ledger, t.tags, t.upstream, t.lends = l, tags, upstream, lends
	t.byID, t.sweepAt = map[core.StreamID]*streamLedger{}, minSweepAt
}

func (t *streamLedgers) slot(id core.StreamID) *atomic.Pointer[streamLedger] {
	return &t.cache[uint64(id)%cacheSlots]
}

// byLane reports whether a lane has a ledger of its own.
func (t *streamLedgers) byLane(l *path.Lane) bool { return !t.lends && l.Part(path.BackendPart) != nil }

// enter returns the ledger of a stream with its lock held; it makes one if there
// is none.
func (t *streamLedgers) enter(id core.StreamID) *streamLedger {
	if of := t.path.Lane(id); t.byLane(of) {
		return t.enterLane(of)
	}
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

func (t *streamLedgers) enterLane(of *path.Lane) *streamLedger {
	of.Lock()
	if l, _ := of.Part(t.path.Number()).(*streamLedger); l != nil {
		return l
	}
	of.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	of.Lock()
	l, _ := of.Part(t.path.Number()).(*streamLedger)
	if l == nil {
		l = t.make(0, 0, of)
		of.SetPart(t.path.Number(), l)
		t.lanes = append(t.lanes, l)
	}
	return l
}

func (t *streamLedgers) make(id core.StreamID, base uint64, mu *path.Lane) *streamLedger {
	l := &streamLedger{stream: id, mu: mu, base: base, credit: credit{ledger: t.ledger}, tallies: map[core.Tag]*tally{}, tags: t.tags}
	l.general.source = &l.credit
	return l
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

// add makes the ledger of a stream, unless another goroutine has meanwhile.
func (t *streamLedgers) add(id core.StreamID, base uint64) *streamLedger {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byID[id]; l != nil {
		return l
	}
	if len(t.byID) >= t.sweepAt {
		t.sweep()
	}
	l := t.make(id, base, t.path.Lane(id))
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

// each yields all stream ledgers; t.mu must be held.
func (t *streamLedgers) each(yield func(*streamLedger) bool) {
	for _, l := range t.lanes {
		if !yield(l) {
			return
		}
	}
	maps.Values(t.byID)(yield)
}

// list is all stream ledgers.
func (t *streamLedgers) list() []*streamLedger {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(t.each)
}
