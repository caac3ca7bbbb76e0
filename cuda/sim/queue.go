package sim

import (
	"context"
	"sync"
	"time"

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
	// number is its place among all operations of the device, in the order of the calls.
	number uint64
	// end is the sequence number that the stream has come to when the
	// operation is done: its own, or that of the last mark behind it.
	end uint64

	waitFor record // opWait

	// queued is the host's virtual time at the call. moment, if not nil, is told when the device has come to the operation.
	queued time.Duration
	moment *moment

	value     byte   // fills
	hostBytes []byte // copies to and from the host

	peer   *Device // opFromPeer: where the source is,
	source *op     // and the copy as that device's oracle sees it

	kernel *Kernel // opLaunch
	exec   Exec

	uses []use // the ranges it declares
	// launches are those of a runtime that it may be work of.
	launches []*declaration
	work     *Work // nil of the guard's

	begun bool  // it runs, or has run
	timed bool  // opMark: of an event with timing
	fell  *fell // opLaunch: it has faulted, and that is yet to be said
}

var opPool = sync.Pool{New: func() any { return new(op) }}

// newOp makes an operation; touches are what a fill or copy does, a write first.
func newOp(kind opKind, name string, touches ...Range) *op {
	o := opPool.Get().(*op)
	o.kind, o.name = kind, name
	o.exec.touches = append(o.exec.touches, touches...)
	return o
}

// recycle forgets what the operation held and keeps its slices.
func (o *op) recycle() {
	clear(o.uses)
	for _, l := range o.launches {
		l.release()
	}
	*o = op{uses: o.uses[:0], launches: o.launches[:0], exec: Exec{args: o.exec.args[:0], touches: o.exec.touches[:0]}}
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
	for done, q := s.done.Load(), &s.frees; q.head < len(q.list) && q.list[q.head].seq <= done; {
		s.frees.pop()
	}
}

// record is one record of an event: the operations of a stream up to seq,
// held back by a gate if an injected fault says so.
type record struct {
	s    *stream
	seq  uint64
	gate context.Context // ends when the gate opens; nil for none
	// moment is when the device comes to it; nil where that is not noted.
	moment *moment
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

// mark gives s a new operation that needs nothing done. Behind queued work it
// is passed with the newest entry; on an idle stream, at once. Where timing is
// simulated (seeded, slow stream) or the moment is noted it is an entry of its own.
func (d *Device) mark(s *stream, timed bool) *moment {
	if d.chooser == nil && s.slow.Load() == 0 && !timed {
		s.pass()
		return nil
	}
	o := newOp(opMark, "mark")
	o.moment, o.timed = new(moment), timed
	noted := o.moment
	d.push(s, o)
	return noted
}

// pass gives s a place of its own behind all that is queued, which it has come to with the
// last of that.
func (s *stream) pass() {
	s.seq++
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.queue.last(); last != nil {
		last.end = s.seq
		if s.lying {
			s.pretend()
		}
		return
	}
	s.done.Store(s.seq)
}

// push queues an operation; the device's lock is held.
func (d *Device) push(s *stream, o *op) {
	s.seq++
	o.stream, o.now = s.handle, s.now()
	o.end = s.seq
	d.pushed++
	o.number = d.pushed
	o.queued = d.callTime()
	o.belong(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.push(o)
	if s.lying {
		s.pretend()
	}
	if d.chooser != nil {
		d.stalled.Broadcast()
		d.stir()
		return
	}
	if !s.working {
		s.working = true
		d.workers.Add(1)
		go d.serve(s)
	}
}

// serve runs the queue of s until it is empty. If a kernel ends the goroutine by runtime.Goexit,
// another one goes on behind that kernel.
func (d *Device) serve(s *stream) {
	served := false
	defer func() {
		if served {
			d.workers.Done()
			return
		}
		go d.serve(s)
	}()
	for o := s.begin(); o != nil; o = d.advance(s, o) {
		if !o.begun {
			o.begun = true
			d.delay(s)
			d.run(o)
		}
		if o.fell != nil {
			d.lie(s)
			o.fell.wait(d)
			d.dumpFault(o, o.fell.r)
		}
		if o.moment != nil {
			o.moment.note(d.sinceOpen())
		}
		if d.isDead() {
			d.kill()
		}
	}
	served = true
}

func (d *Device) advance(s *stream, o *op) *op {
	next := s.advance(o)
	d.stir()
	return next
}

// begin returns the entry to run. It stays in the queue while it runs, so that
// the stream is seen to be busy.
func (s *stream) begin() *op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.first()
}

// advance passes an entry that was run and returns the next; nil ends the
// goroutine's service.
func (s *stream) advance(o *op) *op {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.pop()
	s.done.Store(o.end)
	if s.waiters > 0 {
		s.moved.Broadcast()
	}
	o.recycle()
	next := s.queue.first()
	s.working = next != nil
	return next
}

// delay is the slow stream's.
func (d *Device) delay(s *stream) {
	pause := time.Duration(s.slow.Load())
	if pause <= 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.dead:
	}
}

// run does what an entry says. Of a dead context nothing is done.
func (d *Device) run(o *op) {
	switch {
	case d.isDead():
	case d.memory.arena.pages.revokes:
		d.runRevocable(o)
	default:
		d.perform(o)
	}
}

func (d *Device) perform(o *op) {
	switch o.kind {
	case opMark:
	case opWait:
		if d.chooser == nil {
			d.await(o.waitFor)
		}
	case opLaunch:
		d.runKernel(o)
	default:
		d.runTransfer(o)
	}
}

// await blocks until a record is done or the context dead.
func (d *Device) await(r record) {
	if r.abroad != nil {
		d.awaitPeer(r)
		return
	}
	if r.gate != nil {
		select {
		case <-r.gate.Done():
		case <-d.dead:
			return
		}
	}
	if r.s != nil {
		r.s.awaitDone(d, r.seq)
	}
}

func (s *stream) awaitDone(d *Device, seq uint64) {
	if s.done.Load() >= seq {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters++
	for s.done.Load() < seq && !d.isDead() {
		s.moved.Wait()
	}
	s.waiters--
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved.Broadcast()
}

// The seeded schedule. Everything here runs under the device's lock: kernels
// too, which is why they may not call the device.

// maxProgress bounds the operations run within one ordinary call.
const maxProgress = 3

// slowChance is one in how many picks may fall on a slow stream while others
// have work.
const slowChance = 16

// progress runs a few operations, as a device would behind the host's back.
func (d *Device) progress() {
	for range d.chooser.IntN(maxProgress + 1) {
		if !d.step() && !d.stepPeer((*sync.Mutex).TryLock) {
			return
		}
	}
}

// step runs one operation whose predecessors are done; false if there is none.
func (d *Device) step() bool {
	if d.isDead() {
		return false
	}
	s := d.choose()
	if s == nil {
		return false
	}
	o := s.begin()
	switch {
	case o.fell != nil:
		d.dumpFault(o, o.fell.r)
	default:
		if d.run(o); o.fell != nil {
			d.lie(s)
			return true
		}
	}
	s.spend(o)
	d.advance(s, o)
	if d.isDead() {
		d.killLocked()
	}
	return true
}

// choose picks a stream whose first entry may run.
func (d *Device) choose() *stream {
	var ready, quick []*stream
	for _, s := range d.slots.owners {
		o := s.begin()
		if o == nil || o.kind == opWait && !o.waitFor.passable() || o.fell != nil && o.fell.said.Err() == nil {
			continue
		}
		ready = append(ready, s)
		if s.slow.Load() == 0 {
			quick = append(quick, s)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	if len(quick) > 0 && len(quick) < len(ready) && d.chooser.IntN(slowChance) != 0 {
		ready = quick
	}
	return ready[d.chooser.IntN(len(ready))]
}

// finish blocks until the records are done or the context dead. It takes and
// releases the device's lock.
func (d *Device) finish(records ...record) {
	if d.chooser == nil {
		for _, r := range records {
			d.await(r)
		}
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range records {
		for !r.done() && !d.isDead() {
			f, seen := d.glance()
			if !d.step() {
				d.stall(f, seen)
			}
		}
		d.sawDone(r)
	}
}
