package sim

import (
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

func newOp(kind opKind, name string) *op {
	o := opPool.Get().(*op)
	o.kind, o.name = kind, name
	return o
}

// recycle forgets what the operation held and keeps its slices.
func (o *op) recycle() {
	clear(o.uses)
	*o = op{uses: o.uses[:0], exec: Exec{args: o.exec.args[:0], touches: o.exec.touches[:0]}}
	opPool.Put(o)
}

// opQueue is a ring of operations.
type opQueue struct {
	ring []*op // its length is a power of two or zero
	head int
	n    int
}

func (q *opQueue) push(o *op) {
	if q.n == len(q.ring) {
		q.grow()
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = o
	q.n++
}

func (q *opQueue) grow() {
	wide := make([]*op, max(8, 2*len(q.ring)))
	for i := range q.n {
		wide[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
	}
	q.ring, q.head = wide, 0
}

func (q *opQueue) first() *op {
	if q.n == 0 {
		return nil
	}
	return q.ring[q.head]
}

func (q *opQueue) last() *op {
	if q.n == 0 {
		return nil
	}
	return q.ring[(q.head+q.n-1)&(len(q.ring)-1)]
}

func (q *opQueue) pop() {
	q.ring[q.head] = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
}

// pendingFrees are the frees of a stream that the device had not passed when
// last looked at.
type pendingFrees struct {
	list []pendingFree
	head int
}

type pendingFree struct{ seq, bytes uint64 }

func (p *pendingFrees) add(seq, bytes, done uint64) {
	p.prune(done)
	p.list = append(p.list, pendingFree{seq, bytes})
}

func (p *pendingFrees) prune(done uint64) {
	for p.head < len(p.list) && p.list[p.head].seq <= done {
		p.head++
	}
	if p.head > 32 && p.head*2 >= len(p.list) {
		p.list = append(p.list[:0], p.list[p.head:]...)
		p.head = 0
	}
	if p.head == len(p.list) {
		p.list, p.head = p.list[:0], 0
	}
}

// record is one record of an event: the operations of a stream up to seq,
// held back by a gate if an injected fault says so.
type record struct {
	s    *stream
	seq  uint64
	gate *gate
	// abroad is the device of the record where another waits for it.
	abroad *Device
}

func (r record) done() bool {
	return (r.gate == nil || r.gate.opened()) && (r.s == nil || r.s.done.Load() >= r.seq)
}

// passable reports whether what waits for the record may go on: it is done,
// or on another device, which will never do it.
func (r record) passable() bool { return r.done() || r.abroad != nil && r.abroad.isDead() }

// gate holds work back until it is opened.
type gate struct {
	ch   chan struct{}
	once sync.Once
}

func newGate() *gate { return &gate{ch: make(chan struct{})} }

func (g *gate) open() { g.once.Do(func() { close(g.ch) }) }

func (g *gate) opened() bool {
	select {
	case <-g.ch:
		return true
	default:
		return false
	}
}

// completed is the record of an event that was never recorded.
var completed = record{}
