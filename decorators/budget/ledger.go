package budget

import "sync/atomic"

// ledger is the general ledger: one word that every request must fit into.
//
// # The protocol
//
// used is what counts against the limit. A request takes its bytes before it
// goes to the device and gives them back if that fails; a block that was
// granted gives them back when the upstream says that the device has passed
// its free. Taking is a compare-and-swap that adds only what fits. Adding
// first and checking afterwards would be one instruction cheaper and wrong:
// while an oversized request has its bytes added, requests that fit are
// refused.
//
// Bytes that are pending on a stream may be lent to an allocation on the
// same stream. A loan is the part of a grant that is not in used; lent is the
// sum of the loans that stand, which the stream ledgers keep: a stream that
// lives on its own pending bytes writes no word that others write. So
//
//	used + lent = live + pending + unspent claims + credit + grants under way
//
// whenever no stream ledger is locked, and used never grows beyond the limit.
// Both sides of a loan are charged while it stands, so that the charge (used +
// lent) may exceed the limit by what is lent, which is never more than what is
// pending; the device, which does not begin the allocation before it has passed
// the frees, never does. When the bytes lent are released their charge becomes
// the borrower's, and used stays as it is.
//
// A grant borrows what it can even if there is room. Were it to borrow only
// when short, a stream that takes room while it has bytes of its own coming
// would leave another one short, for no reason but timing.
//
// All of it happens under the lock of the stream ledger, so the same bytes
// never stand in twice, and no instant exists in which bytes are neither
// pending nor given back. The general ledger and each claim are accounts with
// this same algebra: a claim's unspent bytes are to it what the room below
// the limit is to the general ledger. Loans stay within one account.
//
// # Credit
//
// A stream that frees and allocates in turn would write used twice for each pair, and
// so would all others. So a stream ledger keeps what is released on it as credit, and
// grants from that first: credit is in used and in no block. No request may be refused
// for it:
//
//   - A stream ledger keeps credit under its lock, while recalls is zero, and at most
//     a part of the room that is left. It grants from it under its lock, whatever
//     recalls is: that makes of credit a grant, and used stays as it is.
//   - A request that found no room raises recalls, then takes the credit of all stream
//     ledgers, each under its lock, then tries again, and lowers recalls after that.
//     [streamLedgers.recallCredit] is these steps.
//
// So at the instant of that try there is no credit. A stream ledger was empty when
// its lock was released after the sweep had taken its credit; one that locked it later
// read recalls after it was raised, and gave to the general ledger what it would have
// kept. One that was made later was made behind the lock of the table, under which
// the sweep found all others, so the same holds for its first release. With no
// credit, used is what is live, pending, claimed and being granted less what is lent,
// all of it owned at that instant: what does not fit then does not fit,
// with or without credit. No other instant is needed, and none is claimed: others may
// take at once what the sweep gave back, and then they have it.
//
// A grant from credit looks at no limit. So a new limit is set at an instant without
// credit, too, and what is kept from then on is within the room below it: there is
// credit only while used is not above the limit.
//
// A stream ledger that is forgotten gives its credit back. To callers credit is room:
// what is charged is used + lent - credit.
type ledger struct {
	_           [64]byte // keeps the hot words off their neighbours' cache lines
	limit, used atomic.Uint64
	recalls     atomic.Int64 // how many are under way
	underflows  atomic.Uint64
	_           [64]byte
	// wake is told that there may be room, while a reservation waits for that; or nil.
	wake atomic.Pointer[func()]
}

// tellRoom tells who waits that there may be room, or will be.
func (l *ledger) tellRoom() {
	if wake := l.wake.Load(); wake != nil {
		(*wake)()
	}
}

// account is where the bytes of a request come from: the general ledger or a
// claim.
type account interface {
	// take takes n bytes if they fit, of which as many as possible, and at
	// most lendable, are on loan; it says how many. If they do not fit it says
	// how many would have, at that moment.
	take(n, lendable uint64) (lent uint64, ok bool)
	// give gives n bytes back.
	give(n uint64)
}

var _ account = (*ledger)(nil)

func (l *ledger) take(n, lendable uint64) (uint64, bool) {
	for {
		used, limit := l.used.Load(), l.limit.Load()
		if used > limit {
			if !fitsOver(n, used-limit, lendable) {
				return roomIn(limit, used, lendable), false
			}
			return n, true
		}
		lent := min(n, lendable)
		if n-lent > limit-used {
			return roomIn(limit, used, lendable), false
		}
		if n == lent || l.used.CompareAndSwap(used, used+n-lent) {
			return lent, true
		}
	}
}

// fitsOver reports whether n bytes fit in stream order though used is over
// the limit, after that was lowered. The stream must have so much pending
// that by the time of the allocation all is below the limit; no more than n
// is lent, because until then no other stream may gain by it.
func fitsOver(n, over, lendable uint64) bool {
	return lendable >= over && n <= lendable-over
}

// give never takes used below zero: it counts the attempt, which is a bug in
// the accounting, and stops there.
func (l *ledger) give(n uint64) {
	for n > 0 {
		used := l.used.Load()
		if !l.used.CompareAndSwap(used, less(used, n)) {
			continue
		}
		if n > used {
			l.underflows.Add(1)
		}
		l.tellRoom()
		return
	}
}

func (l *ledger) room(lendable uint64) uint64 {
	return roomIn(l.limit.Load(), l.used.Load(), lendable)
}

// roomIn is the most that can be taken where so much of a limit is used.
func roomIn(limit, used, lendable uint64) uint64 {
	if used > limit {
		return less(lendable, used-limit)
	}
	return limit - used + min(lendable, used)
}
