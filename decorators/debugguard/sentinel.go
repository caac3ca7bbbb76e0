package debugguard

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// When a hunt lets a block go, nobody watches its bytes any more. A sentinel is
// a small block of the guard's own, taken from the upstream right behind such a
// free, on its stream: it mostly gets the very bytes. It is filled with a
// pattern, compared in turn with the batches of its stream and behind launches
// when bisecting, and once more when it is given back: when there are too many,
// when memory is wanted, by Flush and Drain, and when the hunt ends.

const (
	launchSentinel = string(SentinelTag)
	// minSentinel and maxSentinel bound a sentinel's size in bytes.
	minSentinel = 512
	maxSentinel = 4 << 10
	// sentinelsAtOnce is how many are compared with a batch of other blocks.
	sentinelsAtOnce = 16
	// formerOwners is how many freed blocks are remembered by address.
	formerOwners = 1024
)

// sentinels are those there are. The queue and the former owners change only
// while evicting is held.
type sentinels struct {
	held        tally
	made, freed atomic.Uint64
	queue       []*record // oldest first
	turn        int       // whose turn it is to be compared
	owners      []core.Block
	next        int

	mu    sync.Mutex
	alive map[core.Generation]*record // until the upstream has released them
}

// born notes a sentinel, so that its release is not told as a caller's block's.
func (ss *sentinels) born(rec *record) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.alive == nil {
		ss.alive = map[core.Generation]*record{}
	}
	ss.alive[rec.generation()] = rec
	ss.made.Add(1)
}

// is reports whether a generation is that of a sentinel.
func (ss *sentinels) is(g core.Generation) bool {
	if ss.made.Load() == 0 {
		return false
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.alive[g] != nil
}

// released returns the sentinel that a released block is, nil if it is none, and
// forgets it.
func (ss *sentinels) released(g core.Generation) *record {
	if !ss.is(g) {
		return nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	rec := ss.alive[g]
	delete(ss.alive, g)
	return rec
}

// owned remembers whose the bytes of a block were that is being let go.
func (ss *sentinels) owned(b core.Block, l layout) {
	b.ID.Ptr, b.Bytes = l.base, l.total()
	if len(ss.owners) < formerOwners {
		ss.owners = append(ss.owners, b)
		return
	}
	ss.owners[ss.next] = b
	ss.next = (ss.next + 1) % formerOwners
}

// ownerOf is the block that held an address last, a block of no generation if
// that is forgotten.
func (ss *sentinels) ownerOf(ptr uint64) (owner core.Block) {
	for _, b := range ss.owners {
		if ptr-b.ID.Ptr < b.Bytes && b.ID.Generation > owner.ID.Generation {
			owner = b
		}
	}
	return owner
}

// postSome puts sentinels in the place of some of the blocks that have just
// been freed, far apart. They take at most an eighth of what quarantine may
// hold; when there is no room for more, the oldest eighth of them makes some.
// evicting must be held.
func (r *Resource) postSome(ctx context.Context, freed []*record) error {
	most, bytes := r.cfg.Hunt.Sentinels, r.quarantineLimit()/8
	if most == 0 || len(freed) == 0 {
		return nil
	}
	room := func(size uint64) bool {
		return len(r.sentinels.queue) < most && r.sentinels.held.amount().Bytes+size <= bytes
	}
	if n := len(r.sentinels.queue); n > 0 && !room(maxSentinel) {
		if _, err := r.trimSentinels(ctx, n-max(1, n/8)); err != nil {
			return err
		}
	}
	for _, rec := range freed {
		r.sentinels.owned(rec.block(), rec.guard.layout)
	}
	step := max(1, len(freed)/max(1, most/8))
	for i := 0; i < len(freed); i += step {
		if room(sentinelSize(freed[i])) {
			r.post(ctx, freed[i])
		}
	}
	return nil
}

// post puts a sentinel where a block was. It is never more than a try, and none
// where the lease of the block's stream was given back.
func (r *Resource) post(ctx context.Context, freed *record) {
	if !r.leased(freed.stream()) {
		return
	}
	b, err := r.upstream.Allocate(ctx, core.Request{Bytes: sentinelSize(freed), Stream: freed.stream(), Tag: SentinelTag, Withheld: true})
	if err != nil {
		if outOfMemory(err) {
			r.hide(err)
		}
		return
	}
	owner := r.sentinels.ownerOf(b.ID.Ptr)
	b.State = core.Quarantined
	rec := newGuarded(b, r.ledger.clock.instant(), nil)
	rec.guard.layout, rec.guard.whole, rec.guard.sentinelOf = layout{base: b.ID.Ptr, body: b.Bytes}, true, &owner
	r.sentinels.born(rec)
	r.sentinels.held.add(rec.held())
	r.fillSentinel(ctx, rec)
	r.sentinels.queue = append(r.sentinels.queue, rec)
}

// sentinelSize is a size of which allocators hand out what they were given
// last, as the freed block's was.
func sentinelSize(freed *record) uint64 {
	return min(max(freed.guard.layout.total(), minSentinel), maxSentinel)
}

// fillSentinel fills it. One that could not be filled is kept, and never
// compared.
func (r *Resource) fillSentinel(ctx context.Context, rec *record) {
	err := r.device(ctx, work{name: launchSentinel, stream: rec.stream(),
		uses: []core.Use{{Block: rec.id(), Access: core.Write}},
		enqueue: func(ctx context.Context, stream core.StreamID) (bool, error) {
			err := r.cfg.Device.Fill(ctx, stream, rec.guard.layout.poison(nil, rec.generation(), true))
			return !core.WasNotEnqueued(err), err
		}})
	if err != nil {
		rec.guard.checked = true
		r.count.unchecked.Add(1)
		return
	}
	rec.guard.armed = true
	rec.guard.clean.Store(r.launches.tick())
}

// watchSentinels adds so many of the sentinels that are wanted to a batch, those
// whose turn it is. evicting must be held.
func (r *Resource) watchSentinels(b *batch, uses []core.Use, most int, wanted func(*record) bool) []core.Use {
	at := r.launches.now()
	for range r.sentinels.queue {
		if most == 0 {
			break
		}
		rec := r.sentinels.queue[r.sentinels.turn%len(r.sentinels.queue)]
		r.sentinels.turn++
		if !rec.guard.checked && wanted(rec) {
			b.poisoned(rec, at)
			uses = append(uses, core.Use{Block: rec.id(), Access: core.Read})
			most--
		}
	}
	return uses
}

// trimSentinels gives back the oldest beyond so many, compared once more. It
// returns their bytes; those whose free failed stay. evicting must be held.
func (r *Resource) trimSentinels(ctx context.Context, keep int) (freed uint64, err error) {
	return r.trimSentinelsUntil(ctx, keep, nil)
}

func (r *Resource) trimSentinelsUntil(ctx context.Context, keep int, stop func() bool) (freed uint64, err error) {
	n := len(r.sentinels.queue) - keep
	if n <= 0 {
		return 0, nil
	}
	oldest := r.sentinels.queue[:n]
	r.sentinels.queue = slices.Clone(r.sentinels.queue[n:])
	freed, kept, err := r.evictAll(ctx, oldest, stop)
	r.sentinels.queue = append(kept, r.sentinels.queue...)
	return freed, err
}

// sentinelGone counts one that was given back.
func (r *Resource) sentinelGone(rec *record) {
	r.sentinels.held.sub(rec.held())
	r.sentinels.freed.Add(1)
}
