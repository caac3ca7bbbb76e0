package debugguard

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/genmap"
)

// ledger holds a record of each block known, and of the last ones freed.
type ledger struct {
	records    genmap.Map[*record]
	tombstones graveyard
	// gate is the guard's; each record that is no tombstone holds it open.
	gate *atomic.Int64
	// unseen is the newest generation that may have been allocated here while
	// the ledger was off.
	unseen atomic.Uint64
	pool   sync.Pool
}

func newLedger(gate *atomic.Int64, tombstones int) *ledger {
	l := &ledger{gate: gate, pool: sync.Pool{New: func() any { return new(record) }}}
	l.tombstones.resize(tombstones)
	return l
}

// fresh returns an empty record, locked.
func (l *ledger) fresh() *record {
	rec := l.pool.Get().(*record)
	rec.mu.Lock()
	return rec
}

// enter puts a filled record, locked by fresh, into the books and unlocks it.
func (l *ledger) enter(rec *record) {
	g := rec.generation()
	rec.mu.Unlock()
	l.gate.Add(1)
	l.records.Store(g, rec)
}

// lock returns the record of g, locked, or nil if there is none.
func (l *ledger) lock(g core.Generation) *record {
	rec, ok := l.records.Load(g)
	if !ok {
		return nil
	}
	rec.mu.Lock()
	if rec.generation() != g { // buried and reused meanwhile
		rec.mu.Unlock()
		return nil
	}
	return rec
}

// bury makes a tombstone of rec, which is locked, and unlocks it. The oldest
// tombstone beyond the limit is forgotten.
func (l *ledger) bury(rec *record) {
	g, again := rec.generation(), rec.state() == core.Freed
	rec.setState(core.Freed)
	rec.mu.Unlock()
	if again {
		return
	}
	l.gate.Add(-1)
	if oldest, ok := l.tombstones.add(g); ok {
		l.forget(oldest)
	}
}

func (l *ledger) forget(g core.Generation) {
	rec, ok := l.records.Delete(g)
	if !ok {
		return
	}
	rec.mu.Lock()
	if rec.guard != nil {
		rec.mu.Unlock()
		return
	}
	clear(rec.uses[:])
	rec.fill(core.Block{})
	rec.used = 0
	rec.stacked, rec.allocStack, rec.freeStack = false, nil, nil
	rec.mu.Unlock()
	l.pool.Put(rec)
}

// mayForget reports whether g may have been allocated here and have left no
// record: the ledger was off, or its tombstone is gone.
func (l *ledger) mayForget(g core.Generation) bool {
	return g != 0 && (uint64(g) <= l.unseen.Load() || l.tombstones.forgot(g))
}

// graveyard is the order in which freed blocks are forgotten: first in, first
// out within each of its shards.
type graveyard struct {
	shards [16]struct {
		mu   sync.Mutex
		ring []core.Generation
		next int
		// forgotten is the newest generation that had to go.
		forgotten core.Generation
		_         [16]byte // keeps neighbours on different cache lines
	}
	each int
}

func (y *graveyard) resize(n int) { y.each = max(1, n/len(y.shards)) }

// add enters g and returns the one that must go for it, if any.
func (y *graveyard) add(g core.Generation) (oldest core.Generation, ok bool) {
	s := &y.shards[uint64(g)%uint64(len(y.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ring) < y.each {
		s.ring = append(s.ring, g)
		return 0, false
	}
	oldest, s.ring[s.next] = s.ring[s.next], g
	s.next = (s.next + 1) % y.each
	s.forgotten = max(s.forgotten, oldest)
	return oldest, true
}

// forgot reports whether g may be one that had to go.
func (y *graveyard) forgot(g core.Generation) bool {
	s := &y.shards[uint64(g)%uint64(len(y.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	return g <= s.forgotten
}

// len is the number of freed blocks remembered.
func (y *graveyard) len() int {
	n := 0
	for i := range y.shards {
		s := &y.shards[i]
		s.mu.Lock()
		n += len(s.ring)
		s.mu.Unlock()
	}
	return n
}
