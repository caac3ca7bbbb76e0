package budget

import "github.com/fencepost-gpu/fencepost/core"

// grant is what one request got from its stream's lane, before it becomes a
// block: Requested bytes of a claim and the padding from the general ledger,
// or all from the general ledger.
type grant struct {
	lane           *lane
	drawn, padding part
	record         *record
}

// part is bytes of one till, of which some are on loan.
type part struct {
	till        *till
	bytes, lent uint64
}

// settle takes the part off the books of its till: up to lent of its bytes
// repay loans, and the rest goes back to the purse. The lane must be locked.
func (p *part) settle() {
	if p.bytes == 0 {
		return
	}
	repaid := min(p.lent, p.till.loan)
	p.till.loan -= repaid
	p.till.purse.give(p.bytes - repaid)
}

// obtain fills g for req, from the claim c if that is not nil. The error is a
// shortage.
func (r *Resource) obtain(req *core.Request, c *claim, g *grant) error {
	l := r.lanes.enter(req.Stream)
	defer l.mu.Unlock()
	t, n := &l.general, req.Bytes
	if c != nil {
		t, n = l.tillOf(c), req.Requested
	}
	g.lane = l
	l.grants++
	t.grants++
	lends := !req.Isolated // its memory is taken now, and in no stream's order
	err := r.draw(l, t, n, lends, &g.drawn)
	if padding := req.Bytes - n; err == nil && padding > 0 {
		if err = r.draw(l, &l.general, padding, lends, &g.padding); err != nil {
			g.drawn.settle()
		}
	}
	if err != nil {
		l.leave(t)
		return err
	}
	as := core.Live
	if req.Withheld {
		as = core.Quarantined
	}
	g.record = l.book(req.Tag, g, as)
	return nil
}

// draw fills p with n bytes of t, of which some are lent where lends is set;
// l.mu must be held.
func (r *Resource) draw(l *lane, t *till, n uint64, lends bool, p *part) error {
	var lendable uint64
	if lends {
		lendable = r.lendable(l, t)
	}
	lent, ok := t.purse.take(n, lendable)
	if !ok {
		return &shortage{purse: t.purse, bytes: n, remaining: t.purse.room(lendable)}
	}
	t.loan += lent
	*p = part{till: t, bytes: n, lent: lent}
	return nil
}

// lendable is how many of t's pending bytes are not lent and in front of an
// allocation made now; l.mu must be held, so that a free that another
// goroutine queues and notes meanwhile does not look held back.
func (r *Resource) lendable(l *lane, t *till) uint64 {
	if t.pending == t.loan {
		return 0
	}
	queued := r.upstream.FreedOn(l.stream).Queued
	held := less(l.given, less(queued, l.base))
	return less(t.pending-t.loan, held)
}

// undo gives a grant back that became no block.
func (g *grant) undo() {
	g.lane.mu.Lock()
	defer g.lane.mu.Unlock()
	g.drawn.settle()
	g.padding.settle()
	g.lane.strike(g.record)
	g.lane.leave(g.drawn.till)
}

// less is a-b, or zero if b is more.
func less(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}
