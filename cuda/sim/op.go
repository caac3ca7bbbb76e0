package sim

import (
	"context"
	"sync"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

type opKind uint8

const (
	opMark opKind = iota // nothing to do but to be passed
	opWait
	opMemset
	opToDevice
	opToHost
	opOnDevice
	opFromPeer
	opLaunch
)

// op is one entry of a stream's queue.
type op struct {
	kind   opKind
	name   string
	stream driver.Stream
	now    stamp
	// end is the sequence number that the stream has come to when the
	// operation is done: its own, or that of the last mark behind it.
	end uint64

	waitFor record // opWait

	dst, src, n uint64 // fills and copies
	value       byte
	hostBytes   []byte

	peer   *Device // opFromPeer: where src is,
	source *op     // and the copy as that device's oracle sees it

	kernel *Kernel // opLaunch
	exec   Exec

	uses []use // the ranges it declares
}

var opPool = sync.Pool{New: func() any { return new(op) }}

// newOp makes an operation; touches are what a fill or copy does.
func newOp(kind opKind, name string, touches ...Range) *op {
	o := opPool.Get().(*op)
	o.kind, o.name = kind, name
	o.exec.touches = append(o.exec.touches, touches...)
	return o
}

// recycle forgets what the operation held and keeps its slices.
func (o *op) recycle() {
	clear(o.uses)
	*o = op{uses: o.uses[:0], exec: Exec{args: o.exec.args[:0], touches: o.exec.touches[:0]}}
	opPool.Put(o)
}

// fifo is a queue that keeps its memory.
type fifo[T any] struct {
	list []T // those before head have left
	head int
}

func (q *fifo[T]) push(v T) {
	if len(q.list) == cap(q.list) && q.head*2 > len(q.list) {
		n := copy(q.list, q.waiting())
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, v)
}

// pop takes the first off.
func (q *fifo[T]) pop() {
	var none T
	q.list[q.head] = none
	if q.head++; q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
}

func (q *fifo[T]) waiting() []T { return q.list[q.head:] }

// first and last are zero of an empty queue.
func (q *fifo[T]) first() (v T) {
	if w := q.waiting(); len(w) > 0 {
		v = w[0]
	}
	return v
}

func (q *fifo[T]) last() (v T) {
	if w := q.waiting(); len(w) > 0 {
		v = w[len(w)-1]
	}
	return v
}

// pendingFree is a free of a stream that the device had not passed when last
// looked at.
type pendingFree struct{ seq, bytes uint64 }

// pruneFrees forgets the frees that the device has passed.
func (s *stream) pruneFrees() {
	for done := s.done.Load(); len(s.frees.waiting()) > 0 && s.frees.first().seq <= done; {
		s.frees.pop()
	}
}

// record is one record of an event: the operations of a stream up to seq,
// held back by a gate if an injected fault says so.
type record struct {
	s    *stream
	seq  uint64
	gate context.Context // ends when the gate opens; nil for none
	// abroad is the device of the record where another waits for it.
	abroad *Device
}

func (r record) done() bool {
	return (r.gate == nil || r.gate.Err() != nil) && (r.s == nil || r.s.done.Load() >= r.seq)
}

// passable reports whether what waits for the record may go on: it is done,
// or on another device, which will never do it.
func (r record) passable() bool { return r.done() || r.abroad != nil && r.abroad.isDead() }

// completed is the record of an event that was never recorded.
var completed = record{}
