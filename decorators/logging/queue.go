package logging

import "sync"

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
