package budget

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// Allocate charges the request and passes it on. If the
// bytes do not fit, or the device has no memory, it asks the upstream to reap
// and tries once more, and waits for the device as [Config].Patience says. Errors: core.InvalidRequestError, also for a claim
// that is not open; core.OutOfBudgetError, which matches core.ErrClaimExceeded
// if it is the claim that is short; and the upstream's. After an error nothing is charged.
func (r *Resource) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	err = r.path.Allocate(ctx, nil, &req, &b)
	return b, err
}

// Deallocate passes the free on. Once it has succeeded the block's bytes are
// pending; they leave the ledger by notice. After an error nothing changed.
// Errors are the upstream's; it does not block.
func (r *Resource) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	err = r.path.Deallocate(ctx, nil, &id, &b)
	return b, err
}

// Withhold counts a live block among the holders as what it is above, and passes
// on. It stays charged.
func (r *Resource) Withhold(id core.BlockID, as core.BlockState) {
	rec := r.part.Of(r.records.Find(id))
	if l := rec.lock(id.Generation); l != nil {
		l.withhold(id.Generation, rec, as)
		l.mu.Unlock()
	}
	r.upstream.Withhold(id, as)
	r.ledger.tellRoom() // a guard gives it up before it refuses
}

// released takes a block that the device has passed off the ledger. Its bytes are those
// of the record, not of the notice: exactly what was charged. A generation without a
// record was allocated around the budget.
func (r *Resource) released(of *path.Record, b core.Block) {
	rec := r.part.Of(of)
	if l := rec.lock(b.ID.Generation); l != nil {
		l.release(b.ID.Generation, rec)
		l.mu.Unlock()
	}
}

// grant is what one request was given, until it becomes a block: Requested bytes
// of a claim and the padding of the general ledger, or all of the general ledger.
// It is booked in the ledger of the request's stream.
type grant struct {
	ledger         *streamLedger
	drawn, padding part
	// It is counted in the tally as what it will be, or as asked for.
	tally *tally
	as    core.BlockState
}

// asked is the state of a grant for which the layers beneath have no block yet.
const asked core.BlockState = 0

// count moves the grant in its tally; its stream ledger must be locked.
func (g *grant) count(as core.BlockState) {
	bytes := g.drawn.bytes + g.padding.bytes
	g.tally.in[g.as].sub(bytes)
	g.as = as
	g.tally.in[as].add(bytes)
}

// stateOf is how the block of a request is counted.
func stateOf(req *core.Request) core.BlockState {
	if req.Withheld {
		return core.Quarantined
	}
	return core.Live
}

// bind makes rec the record of the block g that came of the grant. No lock is needed: the block is not
// handed out yet.
func (g *grant) bind(of core.Generation, rec *record) {
	rec.tally, rec.account = g.tally, g.drawn.account
	if rec.ledger.Load() != g.ledger { // nearly never: an atomic store takes longer than the rest
		rec.ledger.Store(g.ledger)
	}
	rec.bytes, rec.drawn = g.drawn.bytes+g.padding.bytes, g.drawn.bytes
	rec.pending, rec.state = false, g.as
	rec.of.Store(uint64(of))
}

// part is bytes of one stream account, some of which may be on loan.
type part struct {
	account     *streamAccount
	bytes, lent uint64
}

// giveBack takes the part off its stream account: up to lent of its bytes repay
// loans, and the rest goes back to the account behind it. The stream ledger must
// be locked.
func (p *part) giveBack() {
	if p.bytes == 0 {
		return
	}
	repaid := min(p.lent, p.account.loan)
	p.account.loan -= repaid
	p.account.source.give(p.bytes - repaid)
}

// obtain fills g for req, from the claim c if that is not nil. If the general ledger
// is short, it recalls the credit of all streams and tries again: a shortage is one
// without anybody's credit.
func (r *Resource) obtain(req *core.Request, c *claim, g *grant) *shortage {
	short := r.fill(req, c, g)
	if short == nil || short.account == account(c) {
		return short
	}
	r.streams.recallCredit(func() { short = r.fill(req, c, g) })
	return short
}

// fill tries once to fill g for req, before a block is sought.
func (r *Resource) fill(req *core.Request, c *claim, g *grant) *shortage {
	l := r.streams.enter(req.Stream)
	defer l.mu.Unlock()
	short := r.fillFrom(l, req, c, g)
	if short == nil {
		g.count(asked)
	}
	return short
}

// fillFrom is fill in the request's stream ledger, which is locked.
func (r *Resource) fillFrom(l *streamLedger, req *core.Request, c *claim, g *grant) *shortage {
	from, n := &l.general, req.Bytes
	if c != nil {
		from, n = l.accountOf(c), req.Requested
	}
	g.ledger = l
	l.grants++
	from.grants++
	lends := r.lends && !req.Isolated // an isolated block: its memory is taken now, and in no stream's order
	short := r.draw(l, from, n, lends, &g.drawn)
	if padding := req.Bytes - n; short == nil && padding > 0 {
		if short = r.draw(l, &l.general, padding, lends, &g.padding); short != nil {
			g.drawn.giveBack()
		}
	}
	if short != nil {
		l.leave(from)
		return short
	}
	g.tally, g.as = l.tallyOf(req.Tag), stateOf(req)
	g.tally.in[g.as].add(req.Bytes)
	return nil
}

// draw fills p with n bytes of a, of which some are lent where lends is set;
// l.mu must be held.
func (r *Resource) draw(l *streamLedger, a *streamAccount, n uint64, lends bool, p *part) *shortage {
	var lendable uint64
	if lends {
		lendable = r.lendable(l, a)
	}
	lent, ok := a.source.take(n, lendable)
	if !ok {
		return &shortage{of: r, account: a.source, bytes: n, remaining: lent, lendable: lendable}
	}
	a.loan += lent
	*p = part{account: a, bytes: n, lent: lent}
	return nil
}

// lendable is how many of a's pending bytes are not lent and are freed on the
// device before an allocation made now begins; l.mu must be held, so that a free
// that another goroutine queues and notes meanwhile does not look held back.
//
// Both differences stop at zero. An example, in bytes: when this stream ledger
// was made, the upstream's counter for the stream stood at base = 100. Since then
// two of its blocks were freed, of 10 and of 30, so freed = 40. A launch that is
// still open uses the larger one, and the upstream has not queued its free: the
// counter stands at queued = 110.
//
//	queued - base        = 110 - 100 = 10   in front of the allocation
//	freed - 10           =  40 -  10 = 30   held back
//	pending - loan - 30  =  40 - 0 - 30 = 10   lendable
//
// The launch ends, the upstream queues the free, queued = 140: nothing is held
// back, and all 40 may be lent. If 25 bytes that are on no account here are then
// freed on the same physical stream, queued = 165, and 40 - 65 is zero and not
// negative: those 25 are never lent, though they hide as many of a free held back
// later.
func (r *Resource) lendable(l *streamLedger, a *streamAccount) uint64 {
	if a.pending == a.loan {
		return 0
	}
	queued := r.upstream.FreedOn(l.stream).Queued
	heldBack := less(l.freed, less(queued, l.base))
	return less(a.pending-a.loan, heldBack)
}

// undo gives a grant back that became no block.
func (g *grant) undo() {
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	g.drawn.giveBack()
	g.padding.giveBack()
	g.tally.in[g.as].sub(g.drawn.bytes + g.padding.bytes)
	g.ledger.leave(g.drawn.account)
}

// less is a-b, or zero if b is more.
func less(a, b uint64) uint64 { return max(a, b) - b }
