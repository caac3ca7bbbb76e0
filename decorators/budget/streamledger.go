package budget

import (
	"slices"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// streamLedger is the ledger of one stream: what is live and pending there, by
// tag, and which of the pending bytes are lent. A block and the sums that it is
// part of change in one step, under its lock. While that is held the upstream is
// asked for its free counters (core.FreeCounters) and for nothing else.
//
// What is kept of a block is a part of its record (package path), which the lock of its stream's ledger
// guards: each operation changes a block together with its stream's sums. A grant counts as
// live from the start, so an allocation changes the sums once.
//
// # What may be lent
//
// The bytes of a free that the upstream has queued on the stream and has not yet
// released. Deallocate says which blocks the caller gave back, not which frees are
// queued: a free is held back while an intent is open on its block, and an
// allocation enqueued now would run before it. The upstream's free counters tell
// the difference. Every block of this ledger was allocated after base was read, so
// Queued-base is the ledger's own frees, and what was freed beyond that is held
// back. Whose block it is cannot be told, so it counts against what each account
// may lend. Where a free that is queued is released (core.OrderedRelease) all that is
// pending is held back, and nothing is lent.
//
// The counters belong to the physical stream. Frees there that this ledger does
// not keep (of blocks of an earlier lease of the same stream, or allocated around
// the budget) can hide as many bytes of a free that is held back; they are never
// lent themselves. Which frees the device has completed is not read from the
// counters: a free leaves the ledger with its notice, in one step with its bytes,
// so that at no instant a request that fits would be refused.
type streamLedger struct {
	_ [64]byte // stream ledgers share no cache line

	// What an allocation and a free look at comes first.
	stream core.StreamID
	mu     *path.Lane // of the stream, or one of its own
	// dropped is set when the table forgets the stream ledger, which it does not
	// do while grants are under way or blocks on its books.
	dropped bool
	grants  uint64
	// freed is the bytes of all frees ever made here, including those whose
	// notice came before Deallocate returned.
	freed  uint64
	credit credit
	// kept is the bytes of the blocks that the backend keeps for the stream's next allocations
	// (package path). They are charged as if they were live.
	kept    uint64
	general streamAccount
	last    *tally
	tags    *tagNews

	base    uint64
	claims  map[core.ClaimID]*streamAccount
	tallies map[core.Tag]*tally
	// order are the same, the oldest first; forgetAt is how many there may be
	// before idle ones are forgotten, forgotten how often that was done.
	order               []*tally
	forgetAt, forgotten int

	_ [64]byte
}

// streamAccount is the part of a stream ledger that belongs to one account.
type streamAccount struct {
	source account
	// grants is how many are under way or became blocks.
	grants uint64
	// pending is bytes that were given back and are not released, loan the part
	// of them that is lent. The oldest frees repay it first, for a younger one
	// may be queued behind the borrower.
	pending, loan uint64
}

// maxIdleTallies is how many tags a stream ledger remembers before it forgets
// those that hold nothing. The number doubles with those that do hold something, so
// that forgetting costs a constant for each new tag.
const maxIdleTallies = 64

// record is what the budget keeps of one block: where it is counted, and which of its bytes are drawn
// from a claim. It is one cache line, so that records of two streams share none. The lock of the stream's
// ledger guards it while it is of a block there.
type record struct {
	of           atomic.Uint64 // the block's generation, 0 while it is of none
	ledger       atomic.Pointer[streamLedger]
	tally        *tally
	account      *streamAccount
	bytes, drawn uint64
	pending      bool
	state        core.BlockState // where the tally counts it
	_            [8]byte
}

// lock locks the ledger that has the block g and returns it, nil if the record is not of g; it may be nil.
func (r *record) lock(g core.Generation) *streamLedger {
	if !r.isOf(g) {
		return nil
	}
	l := r.ledger.Load()
	l.mu.Lock()
	if !r.isOf(g) || r.ledger.Load() != l { // it is another block's since
		l.mu.Unlock()
		return nil
	}
	return l
}

// isOf reports whether it is the record of g; it may be nil.
func (r *record) isOf(g core.Generation) bool { return r != nil && r.of.Load() == uint64(g) }

// tallyOf is the tally of a tag that is given memory; l.mu must be held.
func (l *streamLedger) tallyOf(tag core.Tag) *tally {
	t := l.last
	if t == nil || t.tag != tag {
		t = l.findTally(tag)
	}
	l.tags.of(t)
	return t
}

func (l *streamLedger) findTally(tag core.Tag) *tally {
	t := l.tallies[tag]
	if t == nil {
		if len(l.order) >= max(maxIdleTallies, l.forgetAt) {
			l.forgetIdleTallies()
		}
		t = &tally{tag: tag}
		l.tallies[tag] = t
		l.order = append(l.order, t)
	}
	l.last = t
	return t
}

func (l *streamLedger) forgetIdleTallies() {
	l.order = slices.DeleteFunc(l.order, func(t *tally) bool {
		if t.idle() {
			delete(l.tallies, t.tag)
		}
		return t.idle()
	})
	l.forgetAt = 2 * len(l.order)
	l.forgotten++
}

// accountOf returns the stream account of c; l.mu must be held.
func (l *streamLedger) accountOf(c *claim) *streamAccount {
	a := l.claims[c.id]
	if a == nil {
		a = &streamAccount{source: c}
		if l.claims == nil {
			l.claims = map[core.ClaimID]*streamAccount{}
		}
		l.claims[c.id] = a
	}
	return a
}

// retire moves a live block to pending; l.mu must be held. A block that is
// gone was passed before its Deallocate returned.
func (l *streamLedger) retire(g core.Generation, rec *record) {
	if !rec.isOf(g) {
		return
	}
	rec.pending = true
	rec.count(core.Retired)
	l.freed += rec.bytes
	rec.account.pending += rec.drawn
	l.general.pending += rec.bytes - rec.drawn
}

// release takes a block off the books; l.mu must be held. A block that is
// not pending was passed before its Deallocate returned, or was given back
// around the budget: nothing of it was ever lent.
func (l *streamLedger) release(g core.Generation, rec *record) {
	if !rec.isOf(g) {
		return
	}
	rec.of.Store(0)
	drawn, padding := part{rec.account, rec.drawn, 0}, part{&l.general, rec.bytes - rec.drawn, 0}
	if rec.pending {
		drawn.account.pending -= drawn.bytes
		padding.account.pending -= padding.bytes
		drawn.lent, padding.lent = drawn.bytes, padding.bytes
	} else {
		l.freed += rec.bytes
	}
	rec.tally.in[rec.state].sub(rec.bytes)
	drawn.giveBack()
	padding.giveBack()
	l.leave(rec.account)
}

// withhold counts a live block as what it is above; l.mu must be held. A block
// only goes on in its life: of two notices that overtake each other the later
// state holds.
func (l *streamLedger) withhold(g core.Generation, rec *record, as core.BlockState) {
	if rec.isOf(g) && !rec.pending && rec.state < as {
		rec.count(as)
	}
}

// count moves the block in its tally.
func (r *record) count(as core.BlockState) {
	r.tally.in[r.state].sub(r.bytes)
	r.state = as
	r.tally.in[as].add(r.bytes)
}

// lent is how many of the pending bytes are lent; l.mu must be held.
func (l *streamLedger) lent() uint64 {
	lent := l.general.loan
	for _, a := range l.claims {
		lent += a.loan
	}
	return lent
}

// leave ends a grant of a, and forgets the stream account of a claim that has no
// more grants here; l.mu must be held.
func (l *streamLedger) leave(a *streamAccount) {
	l.grants--
	a.grants--
	if c, ok := a.source.(*claim); ok && a.grants == 0 {
		delete(l.claims, c.id)
	}
}
