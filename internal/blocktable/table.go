// Package blocktable finds the records of blocks by generation without a lock. It is
// the table of a backend, and of layers over a user's own resource (package path).
//
// # The protocol
//
// A table is a hash table of chains through nodes that are embedded in the records.
// It belongs to an owner with a lock, and the lock guards every change: Insert,
// Remove, and what walks over all of it.
//
// [Table.Load] needs no lock. Owners use records again for other blocks, so its
// walk may leave the chain through a record that was removed, or inserted
// elsewhere, since the walk came to it. Nothing breaks by that, because a record
// is never given back to Go's collector while a table may lead to it, a node's
// record never changes, and the walk is bounded. But the answer is a hint:
//
//   - What Load finds had the generation a moment ago. Compare the generation
//     again under the record's own lock before you believe anything else in it.
//   - What Load does not find may be there. Look for it with [Table.Find] under
//     the owner's lock before you believe that it is gone.
//
// A node's word is the generation and, in its low bits, what the record's owner
// keeps there, so that both change in one step. An owner sets the word before it
// inserts the node, and clears or replaces it only after it has removed the node.
// Inserting publishes all that the owner wrote to the record before.
//
// Every method that finds a record walks its chain from node to node without a call,
// and without reading anything of the records but their nodes.
package blocktable

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// StateBits is how many low bits of a node's word are its owner's.
const StateBits = 3

// Word is the word of a generation with the owner's bits.
func Word(g core.Generation, state uint64) uint64 { return uint64(g)<<StateBits | state }

// Node is what a record of type R embeds, once for the table that it may be in.
type Node[R any] struct {
	// Word is zero, or made by the function Word.
	Word   atomic.Uint64
	next   atomic.Pointer[Node[R]]
	record *R
}

// Generation is that in the node's word.
func (n *Node[R]) Generation() core.Generation { return core.Generation(n.Word.Load() >> StateBits) }

// Table is the records of one owner. The zero value is empty and ready for use.
type Table[R any] struct {
	chains atomic.Pointer[[]chain[R]]
	n      int
}

type chain[R any] = atomic.Pointer[Node[R]]

const (
	firstChains = 64
	// strayLimit bounds how far a walk without the lock is led astray: chains are
	// short.
	strayLimit = 16
)

// place is the chain of a generation. It mixes the generation: streams that
// allocate in turn have generations at regular distances.
func place[R any](chains []chain[R], g core.Generation) *chain[R] {
	return &chains[uint64(g)*0x9e3779b97f4a7c15>>32&uint64(len(chains)-1)]
}

// Load finds the record of a generation without the lock. It may miss one, and the
// record that it returns may be of another block by then.
func (t *Table[R]) Load(g core.Generation) *R {
	chains := t.chains.Load()
	if chains == nil {
		return nil
	}
	n := place(*chains, g).Load()
	for range strayLimit {
		if n == nil {
			return nil
		}
		if n.Generation() == g {
			return n.record
		}
		n = n.next.Load()
	}
	return nil
}

// Find finds the record of a generation, nil if there is none. The lock must be held.
func (t *Table[R]) Find(g core.Generation) *R {
	if t.n == 0 {
		return nil
	}
	for n := place(*t.chains.Load(), g).Load(); n != nil; n = n.next.Load() {
		if n.Generation() == g {
			return n.record
		}
	}
	return nil
}

// Insert enters the record of a generation by its node, whose word has the generation
// already. A node stays with the record that it was first inserted with. The lock must be
// held.
func (t *Table[R]) Insert(g core.Generation, n *Node[R], record *R) {
	if n.record == nil {
		n.record = record
	}
	chains := t.chains.Load()
	if chains == nil || t.n == len(*chains) {
		chains = t.grow()
	}
	push(place(*chains, g), n)
	t.n++
}

// push spares the store of what is there already: an atomic store takes longer than
// the rest.
func push[R any](head *chain[R], n *Node[R]) {
	if next := head.Load(); n.next.Load() != next {
		n.next.Store(next)
	}
	head.Store(n)
}

func (t *Table[R]) grow() *[]chain[R] {
	larger := make([]chain[R], max(firstChains, 2*t.n))
	t.nodes(0, 1, func(n *Node[R]) { push(place(larger, n.Generation()), n) })
	t.chains.Store(&larger)
	return &larger
}

// Remove takes the record of a generation out and returns it, nil if there is none. The
// lock must be held.
func (t *Table[R]) Remove(g core.Generation) *R {
	if t.n == 0 {
		return nil
	}
	at := place(*t.chains.Load(), g)
	for n := at.Load(); n != nil; n = at.Load() {
		if n.Generation() == g {
			at.Store(n.next.Load())
			t.n--
			return n.record
		}
		at = &n.next
	}
	return nil
}

// Len is how many records there are. The lock must be held.
func (t *Table[R]) Len() int { return t.n }

// Unused reports whether nothing was ever inserted. It needs no lock.
func (t *Table[R]) Unused() bool { return t.chains.Load() == nil }

// Each calls f for every record. The lock must be held.
func (t *Table[R]) Each(f func(*R)) { t.nodes(0, 1, func(n *Node[R]) { f(n.record) }) }

// nodes calls f, which may move the node to another chain, for the nodes of every nth
// chain from first on.
func (t *Table[R]) nodes(first, nth int, f func(*Node[R])) {
	chains := t.chains.Load()
	if chains == nil {
		return
	}
	for i := first; i < len(*chains); i += nth {
		for n := (*chains)[i].Load(); n != nil; {
			next := n.next.Load()
			f(n)
			n = next
		}
	}
}

// Locker is an owner's lock.
type Locker interface {
	// Lock waits until it is free.
	Lock()
	// Unlock gives it back.
	Unlock()
}

// chainsAtOnce is how many chains of a table are looked at under its lock.
const chainsAtOnce = 64

// List calls yield for every record, with no lock held, until yield returns false,
// which List then returns. It holds mu, the owner's lock, for a few chains at a time,
// so that neither its memory nor the time for which it holds up the owner grows with
// the table. What comes or goes meanwhile may be missed. A record may be of another
// block by the time it is shown, which may be shown in its turn: its reader
// compares the generation.
//
// A table grows by doubling: what was in chain i of the n at the beginning is later in
// one of the chains i, i+n, i+2n and so on. Those are looked at together, so each
// record is shown once.
func (t *Table[R]) List(mu Locker, yield func(core.Generation, *R) bool) bool {
	type sighting struct {
		generation core.Generation
		record     *R
	}
	var sightings []sighting
	note := func(n *Node[R]) { sightings = append(sightings, sighting{n.Generation(), n.record}) }
	mu.Lock()
	n := t.length()
	mu.Unlock()
	for from := 0; from < n; from += chainsAtOnce {
		sightings = sightings[:0]
		mu.Lock()
		for i := from; i < min(from+chainsAtOnce, n); i++ {
			t.nodes(i, n, note)
		}
		mu.Unlock()
		for _, seen := range sightings {
			if !yield(seen.generation, seen.record) {
				return false
			}
		}
	}
	return true
}

// length is how many chains there are; it never falls.
func (t *Table[R]) length() int {
	if chains := t.chains.Load(); chains != nil {
		return len(*chains)
	}
	return 0
}
