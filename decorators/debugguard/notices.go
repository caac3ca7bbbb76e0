package debugguard

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// listeners is a list that is read without a lock.
type listeners struct {
	mu  sync.Mutex
	all atomic.Pointer[[]core.Listener]
}

func (ls *listeners) add(l core.Listener) {
	if l == nil {
		return // nobody to tell
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var all []core.Listener
	if old := ls.all.Load(); old != nil {
		all = append(all, *old...)
	}
	all = append(all, l)
	ls.all.Store(&all)
}

func (ls *listeners) notify(b core.Block) {
	if all := ls.all.Load(); all != nil {
		for _, l := range *all {
			l.Released(b)
		}
	}
}

// Subscribe adds a listener. It hears of a block when the upstream releases
// it, as the guard's callers know it: after its quarantine, with the caller's
// pointer and size.
func (r *Resource) Subscribe(l core.Listener) { r.listeners.add(l) }

// notices is the guard's ear at its upstream. It is a type of its own so that
// Released is not a method of the guard.
type notices struct{ guard *Resource }

// Released closes the record of a block, whoever freed it, and tells the guard's
// own listeners.
func (n notices) Released(b core.Block) {
	r := n.guard
	if rec := r.canaries.released(b.ID.Generation); rec != nil {
		r.noteReleased(rec)
		return
	}
	if r.gate.Load() != 0 {
		r.seals.forget(b.ID.Generation)
		r.released(&b)
	}
	r.listeners.notify(b)
}

// released closes the book of a block and makes b what its owner knew.
func (r *Resource) released(b *core.Block) {
	g := b.ID.Generation
	rec := r.ledger.closeIn(r.ledger.shard(b.ID.AllocStream), g)
	if rec == nil {
		if rec = r.ledger.elsewhere(b.ID); rec == nil {
			return
		}
		r.ledger.close(rec, g)
	}
	if rec.guard != nil { // which is not pooled
		r.noteReleased(rec)
		b.ID, b.Bytes = rec.id(), rec.bytes
	}
}
