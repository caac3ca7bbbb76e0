package debugguard

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/cures"
	"github.com/fencepost-gpu/fencepost/internal/ring"
)

// When a block leaves a hunt's quarantine, its bytes are not watched any more. So
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

// canaries are those that exist now.
type canaries struct {
	queue       queue
	made, freed atomic.Uint64
	// owners are former ones. alive are the canaries that the upstream has not released. Their
	// lock is not that of the queue, under which the upstream is asked what is ordered.
	owners    ring.Ring[core.Block]
	alive     map[core.Generation]*ledger.Record
	aliveLock sync.Mutex
}

// add notes a canary, so that its release is not told as a caller's block's.
func (cs *canaries) add(rec *ledger.Record) {
	cs.aliveLock.Lock()
	defer cs.aliveLock.Unlock()
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
	cs.aliveLock.Lock()
	defer cs.aliveLock.Unlock()
	return cs.alive[g] != nil
}

// released returns the canary that a released block is, nil if it is none, and
// forgets it.
func (cs *canaries) released(g core.Generation) *ledger.Record {
	if !cs.has(g) {
		return nil
	}
	cs.aliveLock.Lock()
	defer cs.aliveLock.Unlock()
	rec := cs.alive[g]
	delete(cs.alive, g)
	return rec
}

// rememberOwner remembers whose the bytes of a block were that is being let go.
func (cs *canaries) rememberOwner(b core.Block, l canary.Layout) {
	b.ID.Ptr, b.Bytes = l.Base, l.Total()
	cs.aliveLock.Lock()
	defer cs.aliveLock.Unlock()
	cs.owners.Put(b, formerOwners)
}

// ownerOf is the block that held an address last, a block of no generation if
// that is forgotten.
func (cs *canaries) ownerOf(ptr uint64) (owner core.Block) {
	cs.aliveLock.Lock()
	defer cs.aliveLock.Unlock()
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
// Only a hunt does this.
func (r *Resource) postSome(ctx context.Context, freed []*ledger.Record) error {
	freed = slices.DeleteFunc(freed, func(rec *ledger.Record) bool { return rec.State() == core.Quarantined })
	most, bytes := r.cfg.Advanced.Hunt.Canaries, r.quarantineLimit()/8
	if most == 0 || len(freed) == 0 || r.Mode() != Hunt {
		return nil
	}
	room := func(size uint64) bool {
		there := r.canaries.queue.size()
		return there.Blocks < uint64(most) && there.Bytes+size <= bytes
	}
	if !room(maxCanary) {
		if _, err := r.giveUpCanaries(ctx, max(1, r.canaries.queue.size().Bytes/8), never); err != nil {
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
	if !r.below.Leased(freed.Stream()) {
		return
	}
	b, err := r.upstream.Allocate(cures.Without(ctx), core.Request{Bytes: canarySize(freed), Stream: freed.Stream(),
		Tag: CanaryTag, Withheld: true})
	if err != nil {
		if cures.Short(err) {
			r.hide(err)
		}
		return
	}
	owner := r.canaries.ownerOf(b.ID.Ptr)
	b.State = core.Quarantined
	rec := r.ledger.NewGuarded(b, nil, core.SpanContext{})
	rec.Guard.Layout, rec.Guard.Whole, rec.Guard.CanaryOf = canary.Layout{Base: b.ID.Ptr, Body: b.Bytes}, true, &owner
	r.canaries.add(rec)
	r.canaries.queue.push(rec)
	r.arm(ctx, launchCanary, rec, poison)
}

// canarySize is a size of which allocators hand out what they were given
// last, as the freed block's was.
func canarySize(freed *ledger.Record) uint64 {
	return min(max(freed.Guard.Layout.Total(), minCanary), maxCanary)
}

// giveUpCanaries gives back the oldest canaries that make up so many bytes, compared
// once more, until stop says so. It returns their bytes; those whose free failed stay.
func (r *Resource) giveUpCanaries(ctx context.Context, bytes uint64, stop func() bool) (freed uint64, err error) {
	return r.evict(ctx, &r.canaries.queue, r.canaries.queue.dequeue(bytes), stop)
}

// gone counts one that was given back.
func (cs *canaries) gone(rec *ledger.Record) {
	cs.queue.mu.Lock()
	defer cs.queue.mu.Unlock()
	cs.queue.left(rec)
	cs.freed.Add(1)
}
