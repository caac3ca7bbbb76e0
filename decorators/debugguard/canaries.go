package debugguard

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/ring"
)

// When a block leaves a hunt's quarantine, nobody watches its bytes any more. So
// the guard allocates a canary right behind such a free, on the same stream: a
// small block of its own, which mostly gets the very same bytes. It is filled with
// a pattern and compared again and again, in turn with the batches of its stream
// and, when bisecting, behind launches. It is compared a last time when it is
// given back: when there are too many, when memory is short, by Flush and Drain,
// and when the hunt ends.

const (
	launchCanary = string(CanaryTag)
	// minCanary and maxCanary bound a canary's size in bytes.
	minCanary = 512
	maxCanary = 4 << 10
	// canariesAtOnce is how many are compared with a batch of other blocks.
	canariesAtOnce = 16
	// formerOwners is how many freed blocks are remembered by address.
	formerOwners = 1024
)

// canaries are those that exist now. The queue and the former owners change only
// while evicting is held.
type canaries struct {
	memory      tally
	made, freed atomic.Uint64
	queue       []*ledger.Record // oldest first
	next        int              // whose turn it is to be compared
	owners      ring.Ring[core.Block]

	mu    sync.Mutex
	alive map[core.Generation]*ledger.Record // until the upstream has released them
}

// add notes a canary, so that its release is not told as a caller's block's.
func (cs *canaries) add(rec *ledger.Record) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.alive == nil {
		cs.alive = map[core.Generation]*ledger.Record{}
	}
	cs.alive[rec.Generation()] = rec
	cs.made.Add(1)
}

// has reports whether a generation is that of a canary.
func (cs *canaries) has(g core.Generation) bool {
	if cs.made.Load() == 0 {
		return false
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.alive[g] != nil
}

// released returns the canary that a released block is, nil if it is none, and
// forgets it.
func (cs *canaries) released(g core.Generation) *ledger.Record {
	if !cs.has(g) {
		return nil
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	rec := cs.alive[g]
	delete(cs.alive, g)
	return rec
}

// rememberOwner remembers whose the bytes of a block were that is being let go.
func (cs *canaries) rememberOwner(b core.Block, l canary.Layout) {
	b.ID.Ptr, b.Bytes = l.Base, l.Total()
	cs.owners.Put(b, formerOwners)
}

// ownerOf is the block that held an address last, a block of no generation if
// that is forgotten.
func (cs *canaries) ownerOf(ptr uint64) (owner core.Block) {
	for b := range cs.owners.Newest() {
		if ptr-b.ID.Ptr < b.Bytes && b.ID.Generation > owner.ID.Generation {
			owner = *b
		}
	}
	return owner
}

// postSome puts canaries in the place of some of the blocks that have just
// been freed, far apart; those among them whose free failed are in quarantine still.
// They take at most an eighth of what quarantine may
// hold; when there is no room for more, the oldest eighth of them makes some.
// Only a hunt does this. evicting must be held.
func (r *Resource) postSome(ctx context.Context, freed []*ledger.Record) error {
	freed = slices.DeleteFunc(freed, func(rec *ledger.Record) bool { return rec.State() == core.Quarantined })
	most, bytes := r.cfg.Hunt.Canaries, r.quarantineLimit()/8
	if most == 0 || len(freed) == 0 || r.Mode() != Hunt {
		return nil
	}
	room := func(size uint64) bool {
		return len(r.canaries.queue) < most && r.canaries.memory.amount().Bytes+size <= bytes
	}
	if n := len(r.canaries.queue); n > 0 && !room(maxCanary) {
		if _, err := r.trimCanaries(ctx, n-max(1, n/8), never); err != nil {
			return err
		}
	}
	for _, rec := range freed {
		r.canaries.rememberOwner(rec.Block(), rec.Guard.Layout)
	}
	step := max(1, len(freed)/max(1, most/8))
	for i := 0; i < len(freed); i += step {
		if room(canarySize(freed[i])) {
			r.post(ctx, freed[i])
		}
	}
	return nil
}

// post puts a canary where a block was. It is never more than a try, and none
// where the lease of the block's stream was given back.
func (r *Resource) post(ctx context.Context, freed *ledger.Record) {
	if !r.leased(freed.Stream()) {
		return
	}
	b, err := r.upstream.Allocate(ctx, core.Request{Bytes: canarySize(freed), Stream: freed.Stream(), Tag: CanaryTag, Withheld: true})
	if err != nil {
		if outOfMemory(err) {
			r.hide(err)
		}
		return
	}
	owner := r.canaries.ownerOf(b.ID.Ptr)
	b.State = core.Quarantined
	rec := r.ledger.NewGuarded(b, nil, core.SpanContext{})
	rec.Guard.Layout, rec.Guard.Whole, rec.Guard.CanaryOf = canary.Layout{Base: b.ID.Ptr, Body: b.Bytes}, true, &owner
	r.canaries.add(rec)
	r.canaries.memory.add(rec.Footprint())
	r.arm(ctx, launchCanary, rec, poison)
	r.canaries.queue = append(r.canaries.queue, rec)
}

// canarySize is a size of which allocators hand out what they were given
// last, as the freed block's was.
func canarySize(freed *ledger.Record) uint64 {
	return min(max(freed.Guard.Layout.Total(), minCanary), maxCanary)
}

// watchCanaries adds so many of the canaries that are wanted to a batch, those
// whose turn it is. evicting must be held.
func (r *Resource) watchCanaries(b *batch, most int, wanted func(*ledger.Record) bool) {
	for _, rec := range inTurn(r.canaries.queue, &r.canaries.next, most, math.MaxUint64, uncompared(wanted)) {
		b.poisoned(rec)
	}
}

// trimCanaries gives back the oldest beyond so many, compared once more, until stop
// says so. It returns their bytes; those whose free failed stay. evicting must be held.
func (r *Resource) trimCanaries(ctx context.Context, keep int, stop func() bool) (freed uint64, err error) {
	n := len(r.canaries.queue) - keep
	if n <= 0 {
		return 0, nil
	}
	oldest := r.canaries.queue[:n]
	r.canaries.queue = slices.Clone(r.canaries.queue[n:])
	freed, left, err := r.letGo(ctx, oldest, stop)
	r.canaries.queue = append(left, r.canaries.queue...)
	return freed, err
}

// canaryGone counts one that was given back.
func (r *Resource) canaryGone(rec *ledger.Record) {
	r.canaries.memory.sub(rec.Footprint())
	r.canaries.freed.Add(1)
}
