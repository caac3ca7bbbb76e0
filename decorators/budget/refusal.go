package budget

import (
	"context"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// namedHolders is how many of the largest holders a refusal names.
const namedHolders = 5

// refuse makes the explained error of a refusal, counts it and reports it to
// the event sink, once. waited is how the request waited, and reaped the error of the reap before
// the refusal, if any.
func (r *Resource) refuse(ctx context.Context, req *core.Request, short *shortage, waited core.Wait, reaped error) error {
	e := *short.refusal()
	e.Wait = waited
	err := alsoReap(refuse.Budget(&e), reaped)
	r.refusals.Add(1)
	if r.events != nil {
		r.events.Emit(ctx, oplog.Event{Op: oplog.OpRefusal, Layer: "budget", Time: time.Now(), Ordinal: r.Ordinal(),
			Stream: req.Stream, Tag: req.Tag, Requested: req.Requested, Bytes: req.Bytes, Span: core.SpanOf(ctx), Err: err})
	}
	return err
}

// Explain is how the budget stands to a reservation that is not made, as a refusal of Reserve would
// say it. It counts nothing. It is safe for concurrent use and does not block.
func (r *Resource) Explain(bytes uint64, tag core.Tag) *core.OutOfBudgetError {
	return r.explain(&shortage{account: &r.ledger, bytes: bytes, tag: tag.OrUntagged()})
}

// Refuse is the refusal of a reservation that is not made any more, because it has waited so:
// counted, and explained as that of Reserve. It is nil if the reservation has room by now and none
// ahead of it: then there is nothing to refuse. It is safe for concurrent use and does not block.
func (r *Resource) Refuse(bytes uint64, tag core.Tag, w core.Wait) *core.OutOfBudgetError {
	e := r.Explain(bytes, tag)
	if e.Wait = w; e.Remaining >= e.Requested && w.Ahead == 0 {
		return nil
	}
	r.refusals.Add(1)
	return refuse.Budget(e)
}

// explain says why the account of short could not give its bytes, by one look at the books. The
// sums add up to the charge that the look finds, and Remaining is what that leaves of the limit: no
// figure is of another moment. Grants that are on their way to the device are live. A claim that is
// short says what it had when it refused, and names no holders.
func (r *Resource) explain(short *shortage) *core.OutOfBudgetError {
	limit := r.ledger.limit.Load()
	e := &core.OutOfBudgetError{Requested: short.bytes, Tag: short.tag, Limit: boundOf(limit),
		LimitedBy: *r.limitedBy.Load()}
	held, lent := r.holdings(true)
	r.claims.addTo(held)
	holders := held.list()
	for _, h := range holders {
		switch h.State {
		case core.Retired:
			e.Pending += h.Bytes
		case core.Quarantined:
			e.Quarantined += h.Bytes
		case core.Claimed:
			e.Claimed += h.Bytes
		default:
			e.Live += h.Bytes
		}
	}
	if c, ok := short.account.(*claim); ok {
		e.Claim, e.Reserved, e.Remaining = c.id, c.bytes, short.remaining
		return e
	}
	lent = min(lent, e.Pending) // both are of streams that go on meanwhile
	used := less(e.Live+e.Pending+e.Quarantined+e.Claimed, lent)
	lendable := min(short.lendable, e.Pending-lent) // the rest has completed
	e.Lent = lent + lendable
	e.Remaining = roomIn(limit, used, lendable)
	e.Holders, e.MoreHolders, e.MoreBytes = largest(holders)
	return e
}

// largest is the holders that a refusal names, and how many more there are of how many bytes.
func largest(holders []core.Holder) (named []core.Holder, more, bytes uint64) {
	n := min(namedHolders, len(holders))
	for _, h := range holders[n:] {
		more++
		bytes += h.Bytes
	}
	return slices.Clone(holders[:n]), more, bytes // logs keep it, and not the list of all
}

// Stats is the upstream's, with Limit and Charged replaced by this budget's
// and its claims, refusals and underflows added. A failure that a second attempt
// followed is left out: one call has failed once, or not at all. Charged may exceed Limit by
// what is lent in stream order, and after the limit was lowered.
func (r *Resource) Stats() core.Stats {
	s := r.upstream.Stats()
	claims, unspent := r.claims.totals()
	s.Limit, s.Charged = r.Limit(), r.charged()
	s.Claims += claims
	s.Claimed += unspent
	s.Refusals += r.refusals.Load()
	s.Underflows += r.ledger.underflows.Load()
	r.path.Room().AddTo(&s, r)
	return s
}

// charged is what is charged in all, loans included. While bytes become credit or are
// recalled it may be off by those.
func (r *Resource) charged() uint64 {
	used := r.ledger.used.Load()
	lent, credit := r.streams.totals()
	return less(used+lent, credit)
}
