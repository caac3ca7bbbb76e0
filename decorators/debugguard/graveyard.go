package debugguard

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// graveyard is the tombstones of a shard, under its lock: copies of the records
// of its last released blocks. A copy is written behind the one before, which
// costs less than to keep the records themselves: those are used again at once,
// while they are in the processor's cache.
type graveyard struct {
	ring []*record
	next int
	made []record // of the last slab, not used yet
	// forgotten is the newest generation that had to go.
	forgotten core.Generation
}

// bury remembers rec, which is locked. The oldest tombstone beyond the limit is
// forgotten.
func (y *graveyard) bury(rec *record, freed instant, limit int, index *addresses) {
	var stone *record
	if len(y.ring) < limit {
		stone = y.fresh()
		y.ring = append(y.ring, stone)
	} else {
		stone = y.ring[y.next]
		y.forget(stone, index)
		if y.next++; y.next == len(y.ring) {
			y.next = 0
		}
	}
	stone.bury(rec, freed)
	if index != nil {
		index.enter(stone)
	}
}

func (y *graveyard) fresh() *record {
	if len(y.made) == 0 {
		y.made = make([]record, slab)
	}
	stone := &y.made[0]
	y.made = y.made[1:]
	return stone
}

func (y *graveyard) forget(stone *record, index *addresses) {
	y.forgotten = max(y.forgotten, stone.generation())
	if index != nil {
		index.remove(stone)
	}
}

// shrink forgets the oldest beyond the limit.
func (y *graveyard) shrink(limit int, index *addresses) {
	excess := len(y.ring) - limit
	if excess <= 0 {
		return
	}
	inOrder := slices.Concat(y.ring[y.next:], y.ring[:y.next])
	for _, stone := range inOrder[:excess] {
		y.forget(stone, index)
	}
	y.ring, y.next = slices.Clone(inOrder[excess:]), 0
}

// each calls visit for every freed block that the ledger remembers, under the
// locks of their shards in turn.
func (l *ledger) eachTombstone(visit func(core.Block)) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, rec := range s.dead.ring {
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
	for i := range s.dead.ring { // the newest first: most second frees come soon
		rec := s.dead.ring[(s.dead.next+len(s.dead.ring)-1-i)%len(s.dead.ring)]
		if rec.generation() == g && g != 0 {
			found := &record{}
			found.bury(rec, rec.freed)
			return found
		}
	}
	return nil
}
