package ledger

import (
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// slab is how many tombstones are made at a time: about 64 KiB of them.
const slab = 273

// Shard counts the blocks of a lane, under its lock. That is never
// held together with another shard's, and a record's is taken under it only where nothing waits.
type Shard struct {
	// mu is the lane's lock.
	mu sync.Locker
	// number is where the ledger's list has it.
	number uint16
	// live counts the records that are entered, counted is set while they hold the
	// gate open.
	live       int
	counted    bool
	tombstones tombstones
	// index is nil until an address was asked for.
	index *addresses
	_     [56]byte // keeps neighbours on different cache lines
}

// Known is the ledger's record of a block by the record that all layers share, nil if it has none.
func (l *Ledger) Known(of *path.Record, g core.Generation) *Record { return l.part.Of(of).of(g) }

// At is the record that the ledger has for the block of a record, of whatever generation that is now; nil if it keeps none there.
func (l *Ledger) At(of *path.Record) *Record {
	p := l.part.Of(of)
	if p == nil {
		return nil
	}
	return p.now()
}

// Get returns the record of a block, nil if there is none. It is not locked:
// what it says is to be believed only if its generation still is the block's.
func (l *Ledger) Get(id core.BlockID) *Record {
	if id.Generation == 0 || id.Generation == core.NoBytes {
		return nil
	}
	return l.part.Of(l.records.Find(id)).of(id.Generation)
}

// Lock returns the record of a block, locked, or nil if there is none.
func (l *Ledger) Lock(id core.BlockID) *Record {
	rec := l.Get(id)
	if rec == nil || !rec.Lock(id.Generation) { // released and reused meanwhile
		return nil
	}
	return rec
}

// LockAny is lock, and of a freed block it returns what is remembered.
func (l *Ledger) LockAny(id core.BlockID) *Record {
	if rec := l.Lock(id); rec != nil {
		return rec
	}
	return l.tombstone(id)
}

// tombstones are those of a shard, under its lock: copies of the records of the
// blocks that it released last, in a ring. Copies in a row cost less than keeping
// the records themselves, which are used again at once, while they are in the
// processor's cache.
type tombstones struct {
	ring []*Record
	next int
	made []Record // of the last slab, not used yet
	// forgotten is the newest generation that had to go.
	forgotten core.Generation
}

// add remembers rec, which was of generation g. The oldest tombstone beyond the limit is
// forgotten.
func (ts *tombstones) add(rec *Record, g core.Generation, limit int, index *addresses) {
	var stone *Record
	if len(ts.ring) < limit {
		stone = ts.fresh()
		ts.ring = append(ts.ring, stone)
	} else {
		stone = ts.ring[ts.next]
		ts.forget(stone, index)
		if ts.next++; ts.next == len(ts.ring) {
			ts.next = 0
		}
	}
	stone.becomeTombstone(rec, g)
	if index != nil {
		index.enter(stone)
	}
}

func (ts *tombstones) fresh() *Record {
	if len(ts.made) == 0 {
		ts.made = make([]Record, slab)
	}
	stone := &ts.made[0]
	ts.made = ts.made[1:]
	return stone
}

func (ts *tombstones) forget(stone *Record, index *addresses) {
	ts.forgotten = max(ts.forgotten, stone.Generation())
	if index != nil {
		index.remove(stone)
	}
}

// shrink forgets the oldest beyond the limit.
func (ts *tombstones) shrink(limit int, index *addresses) {
	excess := len(ts.ring) - limit
	if excess <= 0 {
		return
	}
	inOrder := slices.Concat(ts.ring[ts.next:], ts.ring[:ts.next])
	for _, stone := range inOrder[:excess] {
		ts.forget(stone, index)
	}
	ts.ring, ts.next = slices.Clone(inOrder[excess:]), 0
}

// tombstone returns a copy of what is remembered of a freed block, nil if that
// is nothing. It looks at all that every shard
// remembers: it is asked only about a misuse.
func (l *Ledger) tombstone(id core.BlockID) *Record {
	for _, s := range l.all() {
		if rec := s.tombstone(id.Generation); rec != nil {
			return rec
		}
	}
	return nil
}

func (s *Shard) tombstone(g core.Generation) *Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.tombstones.ring { // the newest first: most second frees come soon
		rec := s.tombstones.ring[(s.tombstones.next+len(s.tombstones.ring)-1-i)%len(s.tombstones.ring)]
		if rec.Generation() == g && g != 0 {
			found := &Record{}
			found.becomeTombstone(rec, g)
			return found
		}
	}
	return nil
}
