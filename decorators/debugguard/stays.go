package debugguard

import (
	"maps"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// CanaryTag is the tag of the guard's own blocks: no caller has them, and they
// are quarantined all their life.
const CanaryTag core.Tag = "gpumem.guard.sentinel"

// Stay is the time that a block was in quarantine. The layers below the guard see
// it free no sooner than Until; their records of that time call it live.
type Stay struct {
	Tag core.Tag
	// Bytes are those that the block takes below the guard, red zones included.
	Bytes       uint64
	From, Until time.Time // Until is zero as long as it is there
}

// keptStays is how many stays that have ended are remembered. They take 320 KiB.
const keptStays = 4096

// stays are the newest that have ended, under the quarantine's lock.
type stays struct {
	ended []Stay
	next  int
	// forgotten is when the newest ended that is not remembered.
	forgotten time.Time
}

func (s *stays) add(stay Stay) {
	if len(s.ended) < keptStays {
		if s.ended == nil {
			s.ended = make([]Stay, 0, keptStays)
		}
		s.ended = append(s.ended, stay)
		return
	}
	s.forgotten = s.ended[s.next].Until
	s.ended[s.next] = stay
	s.next = (s.next + 1) % keptStays
}

// stay is how long a guarded block has been there. Such a record is nobody
// else's later: what is read here does not change.
func (rec *record) stay() Stay {
	return Stay{Tag: rec.tag, Bytes: rec.footprint().Bytes, From: rec.guard.freedAt}
}

// leave notes blocks that were taken from the queue; mu must be held.
func (q *quarantine) leave(blocks []*record) {
	if q.leaving == nil {
		q.leaving = map[*record]struct{}{}
	}
	for _, rec := range blocks {
		q.leaving[rec] = struct{}{}
	}
}

// left ends the stay of a block that was freed.
func (q *quarantine) left(rec *record, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.memory.sub(rec.footprint())
	delete(q.leaving, rec)
	stay := rec.stay()
	stay.Until = now
	q.past.add(stay)
}

// Stays is the blocks that quarantine has or has had, in no order, and since when
// that is every one: those that ended later are all there. since is zero if none
// has been forgotten. It makes no device call. Canaries are left out; see
// [CanaryTag].
func (r *Resource) Stays() (list []Stay, since time.Time) {
	ended, there, since := r.quarantine.everyone()
	list = slices.Grow(ended, len(there))
	for _, rec := range there { // not under the lock, which every free takes: there may be a million
		list = append(list, rec.stay())
	}
	return list, since
}

// everyone is a copy of the stays that have ended, and the blocks that are there.
func (q *quarantine) everyone() (ended []Stay, there []*record, forgotten time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	there = slices.AppendSeq(slices.Clone(q.queue), maps.Keys(q.leaving))
	return slices.Clone(q.past.ended), there, q.past.forgotten
}
