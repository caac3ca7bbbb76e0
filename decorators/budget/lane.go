package budget

import (
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// lane is the books of one stream: what is live and pending there by tag,
// and what of the pending bytes is lent. Its lock makes each change of a
// block and of the sums it is part of one step. While it is held the upstream
// is asked for its odometer and nothing else.
//
// Blocks are kept by generation, so that a block which gets the address of
// one that is on its way out is another block. They are kept here, and not in
// a map of all streams with a lock of its own, because each operation changes
// a block together with its stream's sums: one lock instead of two. A grant is
// in the sums as live from the start, so an allocation changes them once.
//
// # What may be lent
//
// The bytes of a free that the upstream has queued on the stream and that
// has not been released. Deallocate says which blocks are given back, not
// which frees are queued: one is held back while an intent is open on its
// block, and an allocation enqueued now would run before it. The upstream's
// odometer tells the difference. Every block of the lane was allocated after
// base was read, so Queued-base is the lane's own frees, and what was given
// back beyond that is held. Whose block it is cannot be told, so it counts
// against what each purse may lend.
//
// The odometer belongs to the physical stream. Frees there that this lane
// does not keep (of blocks of an earlier lease of the same stream, or
// allocated around the budget) can hide as many bytes of a held free; they
// are never lent themselves. Which frees are passed is not read from the
// odometer: a free leaves the lane with its notice, in one step with its
// bytes, so that there is no gap in between in which a request that fits
// would be refused.
type lane struct {
	_ [64]byte // lanes share no cache line

	stream core.StreamID
	base   uint64

	mu sync.Mutex
	// dead is set when the lane is dropped from its table. It is not dropped
	// while grants are underway or blocks on its books.
	dead    bool
	grants  uint64
	records records
	// given is the bytes of all frees ever made here, including those whose
	// notice came before Deallocate returned.
	given   uint64
	general till
	claims  map[core.ClaimID]*till
	tallies map[core.Tag]*tally
	// order are the same, the oldest first; forgetAt is how many there may be
	// before idle ones are forgotten, forgotten how often that was done.
	order               []*tally
	forgetAt, forgotten int
	last                *tally
	tags                *tagNews

	_ [64]byte
}

// till is the part of a lane that belongs to one purse.
type till struct {
	purse purse
	// grants is how many are under way or became blocks.
	grants uint64
	// pending is given back and not released, loan what of it is lent: never
	// more than pending. The oldest frees repay it first, for a younger one
	// may be queued behind the borrower.
	pending, loan uint64
}

// tally is what one tag holds on one stream.
type tally struct {
	tag core.Tag
	// in is what it holds by the state that callers see: what a guard above
	// withholds is quarantined, though live to all calls.
	in   [core.Freed]sum
	told uint32   // see tagNews
	_    [44]byte // makes 128 bytes: lanes share no cache line, nor a pair of them
}

func (t *tally) idle() bool {
	return t.in[core.Live].blocks+t.in[core.Retired].blocks+t.in[core.Quarantined].blocks == 0
}

type sum struct{ bytes, blocks uint64 }

func (s *sum) add(bytes uint64) { s.bytes, s.blocks = s.bytes+bytes, s.blocks+1 }
func (s *sum) sub(bytes uint64) { s.bytes, s.blocks = s.bytes-bytes, s.blocks-1 }

// maxIdleTallies is how many tags a lane remembers before it forgets those
// that hold nothing. The number doubles with those that do hold something, so
// that forgetting costs a constant for each new tag.
const maxIdleTallies = 64

// book enters a grant, as live from now on; l.mu must be held.
func (l *lane) book(tag core.Tag, g *grant, as core.BlockState) *record {
	tally := l.last
	if tally == nil || tally.tag != tag {
		tally = l.tallyOf(tag)
	}
	l.tags.of(tally)
	rec := l.records.open()
	rec.tally, rec.till = tally, g.drawn.till
	rec.bytes, rec.drawn = g.drawn.bytes+g.padding.bytes, g.drawn.bytes
	rec.state = as
	tally.in[as].add(rec.bytes)
	return rec
}

// strike undoes book; l.mu must be held.
func (l *lane) strike(rec *record) {
	rec.tally.in[rec.state].sub(rec.bytes)
	l.records.abandon(rec)
}

func (l *lane) tallyOf(tag core.Tag) *tally {
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

func (l *lane) forgetIdleTallies() {
	l.order = slices.DeleteFunc(l.order, func(t *tally) bool {
		if t.idle() {
			delete(l.tallies, t.tag)
		}
		return t.idle()
	})
	l.forgetAt = 2 * len(l.order)
	l.forgotten++
}

// tillOf returns the till of c; l.mu must be held.
func (l *lane) tillOf(c *claim) *till {
	t := l.claims[c.id]
	if t == nil {
		t = &till{purse: c}
		if l.claims == nil {
			l.claims = map[core.ClaimID]*till{}
		}
		l.claims[c.id] = t
	}
	return t
}

// retire moves a live block to pending; l.mu must be held. A block that is
// gone was passed before its Deallocate returned.
func (l *lane) retire(g core.Generation) {
	rec := l.records.find(g)
	if rec == nil {
		return
	}
	rec.pending = true
	rec.count(core.Retired)
	l.given += rec.bytes
	rec.till.pending += rec.drawn
	l.general.pending += rec.bytes - rec.drawn
}

// release takes a block off the books; l.mu must be held. A block that is
// not pending was passed before its Deallocate returned, or was given back
// around the budget: nothing of it was ever lent.
func (l *lane) release(g core.Generation) {
	rec := l.records.find(g)
	if rec == nil {
		return
	}
	drawn, padding := part{rec.till, rec.drawn, 0}, part{&l.general, rec.bytes - rec.drawn, 0}
	if rec.pending {
		drawn.till.pending -= drawn.bytes
		padding.till.pending -= padding.bytes
		drawn.lent, padding.lent = drawn.bytes, padding.bytes
	} else {
		l.given += rec.bytes
	}
	rec.tally.in[rec.state].sub(rec.bytes)
	drawn.settle()
	padding.settle()
	l.leave(rec.till)
	l.records.remove(rec)
}

// withhold counts a live block as what it is above; l.mu must be held. A block
// only goes on in its life: of two notices that overtake each other the later
// state holds.
func (l *lane) withhold(g core.Generation, as core.BlockState) {
	if rec := l.records.find(g); rec != nil && !rec.pending && rec.state < as {
		rec.count(as)
	}
}

// count moves the block in its tally.
func (r *record) count(as core.BlockState) {
	r.tally.in[r.state].sub(r.bytes)
	r.state = as
	r.tally.in[as].add(r.bytes)
}

// lent is what of the lane's pending bytes is lent; l.mu must be held.
func (l *lane) lent() uint64 {
	lent := l.general.loan
	for _, t := range l.claims {
		lent += t.loan
	}
	return lent
}

// leave ends a grant of t, and forgets the till of a claim that has none left
// here; l.mu must be held.
func (l *lane) leave(t *till) {
	l.grants--
	t.grants--
	if c, ok := t.purse.(*claim); ok && t.grants == 0 {
		delete(l.claims, c.id)
	}
}
