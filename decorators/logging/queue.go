package logging

import (
	"slices"
	"sort"
	"sync"
)

// queue is the bounded buffer between the callers and a sink's goroutine. It
// has two halves: callers fill one while the goroutine holds the other, so
// taking everything is an exchange of slices, and the lock is held no longer
// than it takes to copy one record.
type queue struct {
	mu      sync.Mutex
	filling []Record
	spare   []Record
	closed  bool
}

func newQueue(size int) *queue {
	return &queue{filling: make([]Record, 0, size), spare: make([]Record, 0, size)}
}

// push adds r and returns how many records wait, zero if r was refused
// because the queue is full or closed.
func (q *queue) push(r *Record) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.filling) == cap(q.filling) {
		return 0
	}
	q.filling = append(q.filling, *r)
	return len(q.filling)
}

// drainTo appends everything that waits to batch, in the order of the pushes.
// One goroutine at a time may call it.
func (q *queue) drainTo(batch []Record) []Record {
	q.mu.Lock()
	full := q.filling
	q.filling = q.spare
	q.mu.Unlock()
	batch = append(batch, full...)
	clear(full) // texts and errors must not live as long as the queue
	q.spare = full[:0]
	return batch
}

// close refuses all later pushes.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}

// reorder puts records into the order of their sequence numbers again. They
// come out of order because a number is taken a moment before the record is
// queued, and a deallocation's even before the driver is called. A tool that
// reads only rows (RMM's) would see an address allocated twice.
//
// Every record waits for one round: what the last round saw is written in this
// one, together with what this round brought before it. So the order is right for all
// that arrives within a round of its number, and nothing waits for a number
// that never comes. The zero value is ready.
type reorder struct {
	waiting []Record
	// seen is the highest number so far.
	seen uint64
}

// round takes the new records from q and returns those that are due, in
// order. They are valid until drop.
func (o *reorder) round(q *queue) []Record {
	due := o.seen
	o.gather(q)
	n := sort.Search(len(o.waiting), func(i int) bool { return o.waiting[i].Seq > due })
	return o.waiting[:n]
}

// rest takes the new records from q and returns all there are, in order. They
// are valid until drop.
func (o *reorder) rest(q *queue) []Record {
	o.gather(q)
	return o.waiting
}

func (o *reorder) gather(q *queue) {
	o.waiting = q.drainTo(o.waiting)
	if !slices.IsSortedFunc(o.waiting, bySeq) {
		slices.SortStableFunc(o.waiting, bySeq)
	}
	if n := len(o.waiting); n > 0 {
		o.seen = max(o.seen, o.waiting[n-1].Seq)
	}
}

// drop forgets the first n records, which were written or given up.
func (o *reorder) drop(n int) {
	left := copy(o.waiting, o.waiting[n:])
	clear(o.waiting[left:])
	o.waiting = o.waiting[:left]
}

// empty reports whether nothing waits.
func (o *reorder) empty() bool { return len(o.waiting) == 0 }
