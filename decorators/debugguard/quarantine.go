package debugguard

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/ring"
)

// queue is blocks whose bytes are watched, oldest first.
type queue struct {
	// memory is that of every block whose free was not forwarded yet, also of those
	// that are leaving.
	memory tally
	mu     sync.Mutex
	blocks []*ledger.Record
	next   int // whose turn it is
	// leaving are those that were taken from the queue and are not freed yet.
	leaving map[*ledger.Record]struct{}
	// leavingBytes are theirs.
	leavingBytes atomic.Uint64
}

// quarantine is a queue of freed blocks.
type quarantine struct {
	queue queue
	// sampled is what it may hold in bytes in mode Sample; see followPeak.
	sampled atomic.Uint64
	// ended are the newest stays that have ended, forgotten is when the newest ended
	// that is not among them.
	ended     ring.Ring[Stay]
	forgotten time.Time
}

// size is what the queue holds of the device.
func (q *queue) size() core.Amount { return q.memory.amount() }

func (q *queue) push(rec *ledger.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.memory.add(rec.Footprint())
	q.blocks = append(q.blocks, rec)
}

// restore puts blocks that could not be freed back to the front.
func (q *queue) restore(blocks []*ledger.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.blocks = slices.Insert(q.blocks, 0, blocks...)
	for _, rec := range blocks {
		q.stays(rec)
	}
}

// dequeue removes the oldest blocks until they make up want bytes.
func (q *queue) dequeue(want uint64) []*ledger.Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, sum := 0, uint64(0)
	for n < len(q.blocks) && sum < want {
		sum += q.blocks[n].Footprint().Bytes
		n++
	}
	return q.leave(n)
}

// dequeueAged removes the oldest blocks, if any came before cutoff, and those of all
// that came until soon after, so that they are compared together; at most so many.
func (q *queue) dequeueAged(cutoff time.Time, soon time.Duration, most int) []*ledger.Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.blocks) == 0 || !q.blocks[0].Guard.FreedAt.Before(cutoff) {
		return nil
	}
	cutoff = cutoff.Add(soon)
	n := 0
	for n < min(most, len(q.blocks)) && q.blocks[n].Guard.FreedAt.Before(cutoff) {
		n++
	}
	return q.leave(n)
}

// nextInTurn returns the next blocks in turn that are wanted, as many as make up
// about so many bytes, without those whose last comparison is queued. They stay
// in the queue as long as the caller has the turn to evict, unless a call goes on beside it: then
// the upstream refuses the use of those that were freed.
func (q *queue) nextInTurn(most int, bytes uint64, wanted func(*ledger.Record) bool) []*ledger.Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	return inTurn(q.blocks, &q.next, most, bytes, func(rec *ledger.Record) (uint64, bool) {
		return rec.Footprint().Bytes, !rec.Guard.Checked && wanted(rec)
	})
}

// inTurn goes round a list, from where it ended the last time, and returns what is
// wanted there until that is as many, or makes up as many bytes, as it may be.
func inTurn[T any](list []T, next *int, most int, bytes uint64, wanted func(T) (bytes uint64, ok bool)) (some []T) {
	sum := uint64(0)
	for range list {
		if len(some) == most || sum >= bytes {
			break
		}
		turn := list[*next%len(list)]
		*next++
		if size, ok := wanted(turn); ok {
			some, sum = append(some, turn), sum+size
		}
	}
	return some
}

// excess is how many bytes must go so that incoming fits into limit and an eighth of it is free.
// Blocks that are leaving count as gone.
func (q *queue) excess(limit, incoming uint64) uint64 {
	bytes := less(q.size().Bytes, q.leavingBytes.Load())
	if bytes == 0 || bytes+incoming <= limit {
		return 0
	}
	return bytes + incoming - limit + limit/8
}

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

// keptStays is how many stays that have ended are remembered. They take 360 KiB at most.
const keptStays = 4096

// stayOf is how long a guarded block has been there. Such a record never
// becomes another block's: what is read here does not change.
func stayOf(rec *ledger.Record) Stay {
	return Stay{Tag: rec.Tag, Bytes: rec.Footprint().Bytes, From: rec.Guard.FreedAt}
}

// leave removes the first n from the queue and notes that they are leaving; mu must be
// held.
func (q *queue) leave(n int) []*ledger.Record {
	if q.leaving == nil {
		q.leaving = map[*ledger.Record]struct{}{}
	}
	blocks := slices.Clone(q.blocks[:n])
	clear(q.blocks[:n])
	q.blocks = q.blocks[n:]
	for _, rec := range blocks {
		q.leaving[rec] = struct{}{}
		q.leavingBytes.Add(rec.Footprint().Bytes)
	}
	return blocks
}

// left notes that a block was freed; mu must be held.
func (q *queue) left(rec *ledger.Record) {
	q.memory.sub(rec.Footprint())
	q.stays(rec)
}

// stays notes that a block is not leaving any more; mu must be held.
func (q *queue) stays(rec *ledger.Record) {
	if _, ok := q.leaving[rec]; ok {
		delete(q.leaving, rec)
		q.leavingBytes.Add(-rec.Footprint().Bytes)
	}
}

// endStay ends the stay of a block that was freed.
func (q *quarantine) endStay(rec *ledger.Record, now time.Time) {
	q.queue.mu.Lock()
	defer q.queue.mu.Unlock()
	q.queue.left(rec)
	stay := stayOf(rec)
	stay.Until = now
	if gone, full := q.ended.Put(stay, keptStays); full {
		q.forgotten = gone.Until
	}
}

// Stays is the blocks that quarantine has or has had, in no order, and since when
// that is every one: those that ended later are all there. since is zero if none
// has been forgotten. It makes no device call. Canaries are left out; see
// [CanaryTag].
func (r *Resource) Stays() (list []Stay, since time.Time) {
	q := &r.quarantine
	q.queue.mu.Lock()
	there := slices.AppendSeq(slices.Clone(q.queue.blocks), maps.Keys(q.queue.leaving))
	list, since = q.ended.List(), q.forgotten
	q.queue.mu.Unlock()
	list = slices.Grow(list, len(there))
	for _, rec := range there { // not under the lock, which every free takes: there may be a million
		list = append(list, stayOf(rec))
	}
	return list, since
}
