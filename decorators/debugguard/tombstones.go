package debugguard

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// tombstones are those of a shard, under its lock: copies of the records of the
// blocks that it released last, in a ring. Copies in a row cost less than keeping
// the records themselves, which are used again at once, while they are in the
// processor's cache.
type tombstones struct {
	ring []*record
	next int
	made []record // of the last slab, not used yet
	// forgotten is the newest generation that had to go.
	forgotten core.Generation
}

// add remembers rec, which is locked. The oldest tombstone beyond the limit is
// forgotten.
func (ts *tombstones) add(rec *record, freed instant, limit int, index *addresses) {
	var stone *record
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
	stone.becomeTombstone(rec, freed)
	if index != nil {
		index.enter(stone)
	}
}

func (ts *tombstones) fresh() *record {
	if len(ts.made) == 0 {
		ts.made = make([]record, slab)
	}
	stone := &ts.made[0]
	ts.made = ts.made[1:]
	return stone
}

func (ts *tombstones) forget(stone *record, index *addresses) {
	ts.forgotten = max(ts.forgotten, stone.generation())
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

// each calls visit for every freed block that the ledger remembers, under the
// locks of their shards in turn.
func (l *ledger) eachTombstone(visit func(core.Block)) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, rec := range s.tombstones.ring {
			visit(rec.block())
		}
		s.mu.Unlock()
	}
}

// tombstone returns a copy of what is remembered of a freed block, nil if that
// is nothing. It looks at all that one shard, or if need be every one,
// remembers: it is asked only about a misuse.
func (l *ledger) tombstone(id core.BlockID) *record {
	if rec := l.shard(id.AllocStream).tombstone(id.Generation); rec != nil {
		return rec
	}
	for i := range l.shards {
		if rec := l.shards[i].tombstone(id.Generation); rec != nil {
			return rec
		}
	}
	return nil
}

func (s *shard) tombstone(g core.Generation) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.tombstones.ring { // the newest first: most second frees come soon
		rec := s.tombstones.ring[(s.tombstones.next+len(s.tombstones.ring)-1-i)%len(s.tombstones.ring)]
		if rec.generation() == g && g != 0 {
			found := &record{}
			found.becomeTombstone(rec, rec.freed)
			return found
		}
	}
	return nil
}
