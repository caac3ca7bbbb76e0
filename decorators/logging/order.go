package logging

import (
	"slices"
	"sort"
)

// reorder puts records into the order of their sequence numbers again. They
// come out of order because a number is taken a moment before the record is
// queued, and a deallocation's even before the driver is called. A tool that
// reads only rows (RMM's) would see an address allocated twice.
//
// Every record is held for one round: what the last round saw is written in
// this one, between what this round brought. So the order is right for all
// that arrives within a round of its number, and nothing waits for a number
// that never comes. The zero value is ready.
type reorder struct {
	held []Record
	// seen is the highest number so far.
	seen uint64
}

// round takes the new records from q and returns those that are due, in
// order. They are valid until release.
func (o *reorder) round(q *queue) []Record {
	due := o.seen
	o.take(q)
	n := sort.Search(len(o.held), func(i int) bool { return o.held[i].Seq > due })
	return o.held[:n]
}

// rest takes the new records from q and returns all there are, in order. They
// are valid until release.
func (o *reorder) rest(q *queue) []Record {
	o.take(q)
	return o.held
}

func (o *reorder) take(q *queue) {
	o.held = q.drainTo(o.held)
	if !slices.IsSortedFunc(o.held, bySeq) {
		slices.SortStableFunc(o.held, bySeq)
	}
	if n := len(o.held); n > 0 {
		o.seen = max(o.seen, o.held[n-1].Seq)
	}
}

// release forgets the first n records, which were written or given up.
func (o *reorder) release(n int) {
	kept := copy(o.held, o.held[n:])
	clear(o.held[kept:])
	o.held = o.held[:kept]
}

// empty reports whether nothing is held.
func (o *reorder) empty() bool { return len(o.held) == 0 }
