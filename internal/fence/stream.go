package fence

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Stream is the order of one physical stream: where it stands, and what it is ordered
// after. It is made part of a larger record by [Order.Add], and must not be copied.
type Stream struct {
	port   Port
	order  *Order
	handle driver.Stream
	// slot is the stream's place in vector clocks.
	slot   int
	counts *Counts

	// gate is held while a deferred record is made, which needs no other lock of
	// the stream, and while a capture begins to keep others out.
	gate sync.Mutex

	mu    sync.Mutex
	seq   uint64
	clock clock
	own   int // where the clock had the stream itself last
	// readyPoint is the point behind the allocations since anything else was
	// enqueued, while its record may still be deferred; see deferred.go.
	// shareable: further allocations may share it. kept is how many references on it the stream keeps for those.
	readyPoint *Point
	kept       int32
	shareable  bool
	// readies says whether there is a ready point, to a launch that does not lock the stream for it.
	readies atomic.Bool
	// noted holds, by slot, the newest dependency of the plan that is being queued on the
	// stream; slots are those that it has.
	noted []dependency
	slots []int

	flights flights
	// final is the point behind all work of a stream that was given up: no
	// call may name its handle any more. It is nil until then.
	final atomic.Pointer[Point]

	completed atomic.Uint64
	// open is how many launches are open, and who else has entered, and isOwn if one of them has what the stream has for
	// one launch at a time: ownSpare, a free point.
	open     atomic.Int64
	ownSpare *Point
	points   pointList
	// capturing: the stream is part of a capture of the runtime's. asksDriver: it may
	// capture without the runtime, so the driver is asked. See capture.go.
	capturing  atomic.Bool
	asksDriver bool
}

// Lock takes the stream's lock: what is enqueued, what it is
// ordered after, and whatever the stream's owner keeps in step with these change under
// it. It may be held over calls of the driver that take long.
func (s *Stream) Lock() { s.mu.Lock() }

// TryLock is Lock if it is free, and reports whether it was taken.
func (s *Stream) TryLock() bool { return s.mu.TryLock() }

// Unlock gives the lock back.
func (s *Stream) Unlock() { s.mu.Unlock() }

// Handle is the driver's. It must not be named once the stream is given up.
func (s *Stream) Handle() driver.Stream { return s.handle }

// Slot is the stream's number in the order, which another may have when it is gone.
func (s *Stream) Slot() int { return s.slot }

// DeviceOrder reports whether what the host sees completed orders nothing, see [NewOrder].
func (s *Stream) DeviceOrder() bool { return s.order.deviceOrder }

// Counts are what the stream's launches came to.
func (s *Stream) Counts() *Counts { return s.counts }

// Completed is the newest sequence number that the device is known to have completed.
func (s *Stream) Completed() uint64 { return s.completed.Load() }

// Events is how many of the driver's events the stream has.
func (s *Stream) Events() int64 { return s.points.made.Load() }

// Seq is the newest sequence number; the stream must be locked.
func (s *Stream) Seq() uint64 { return s.seq }

// Here returns the newest place in the stream's order, and ends the sharing of the ready
// point, so that nothing later gets its number. What is enqueued later lies behind the
// place; the stream must be locked.
func (s *Stream) Here() uint64 {
	s.shareable = false
	return s.seq
}

// After calls yield with the newest operation of each other stream that everything is
// ordered after which is enqueued from now on; the stream must be locked.
func (s *Stream) After(yield func(slot int, seq uint64)) {
	for _, t := range s.clock {
		if t.slot != s.slot && t.seq > 0 {
			yield(t.slot, t.seq)
		}
	}
}

// Known is what a stream is ordered after, at one moment.
type Known struct{ clock clock }

// Known waits for the stream's lock, which may be held over a driver's call: no block
// may be locked.
func (s *Stream) Known() Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Known{newClock().copyFrom(s.clock)}
}

// Enter counts a caller that enqueues work without the stream's lock, until they leave.
func (s *Stream) Enter() { s.open.Add(1) }

// Leave ends what Enter began.
func (s *Stream) Leave() { s.open.Add(-1) }

// isOwn is above all counts of callers.
const isOwn = 1 << 32

// EnterOwn is Enter for a launch. It reports whether the caller has what the stream has for one launch at a time, until
// [Stream.LeaveOwn], which is told so.
func (s *Stream) EnterOwn() bool {
	n := s.open.Load()
	own := n < isOwn
	if own {
		own = s.open.CompareAndSwap(n, n+1+isOwn)
	}
	if !own {
		s.open.Add(1)
	}
	return own
}

// LeaveOwn ends what EnterOwn began.
func (s *Stream) LeaveOwn(own bool) {
	if !own {
		s.Leave()
		return
	}
	s.open.Add(-1 - isOwn)
	if s.points.closed.Load() { // perhaps while the caller had the spare point
		s.giveSpare()
	}
}

// giveSpare puts the spare point to the free ones, unless a launch has it.
func (s *Stream) giveSpare() {
	if !s.EnterOwn() {
		s.Leave()
		return
	}
	if p := s.ownSpare; p != nil {
		s.ownSpare = nil
		s.points.put(p)
	}
	s.open.Add(-1 - isOwn)
}

// Open is how many have entered and not left, launches among them.
func (s *Stream) Open() int64 { return s.open.Load() & (isOwn - 1) }

// point returns a point of the stream's with as many references. Its state is that of its
// last use until the next owner sets another: no other reference is left.
func (s *Stream) point(refs int32) (*Point, error) { return s.pointOf(s.points.take(), refs) }

// pointOf is point with a free point, nil if there is none.
func (s *Stream) pointOf(p *Point, refs int32) (*Point, error) {
	if p == nil {
		event, err := s.port.EventCreate()
		if err != nil {
			return nil, err
		}
		s.points.made.Add(1)
		p = newPoint(s, event)
	}
	if p.refs.Load() != refs { // an atomic store takes longer than all else
		p.refs.Store(refs)
	}
	return p, nil
}

// Record records a point for work under lease; the stream must be locked. The point
// has one reference. Errors are the driver's.
func (s *Stream) Record(lease core.StreamID) (*Point, error) {
	p, err := s.point(1)
	if err != nil {
		return nil, err
	}
	p.lease, p.launch, p.name = lease, 0, ""
	if err := s.recordAt(p); err != nil {
		p.Release()
		return nil, err
	}
	p.state.Store(recorded)
	return p, nil
}

// recordAt records p and gives it the next place in the stream's order, as
// one step; the stream must be locked. The caller sets the state.
func (s *Stream) recordAt(p *Point) error {
	if err := s.Flush(); err != nil {
		return err
	}
	if err := s.port.EventRecord(p.event, s.handle); err != nil {
		return err
	}
	s.place(p)
	return nil
}

// place takes the next sequence number for p and copies the clock into it.
func (s *Stream) place(p *Point) {
	s.seq++
	p.seq = s.seq
	if !s.clock.isAt(s.own, s.slot) {
		s.own = s.clock.find(0, s.slot)
	}
	s.clock = s.clock.raise(s.own, tick{s.slot, s.seq})
	p.clock = p.clock.copyFrom(s.clock)
}

// wait queues a wait for p and joins its clock, as one step; the stream must be
// locked.
func (s *Stream) wait(p *Point) error {
	if err := s.Flush(); err != nil {
		return err
	}
	if err := s.port.StreamWait(s.handle, p.event); err != nil {
		return err
	}
	s.clock = s.clock.join(p.clock)
	return nil
}

// WaitPeer queues a wait for another device's point, whose clock means nothing
// here. Errors are the driver's.
func (s *Stream) WaitPeer(peer driver.Driver, p *Point) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Flush(); err != nil {
		return err
	}
	return s.port.StreamWaitPeer(s.handle, peer, p.event)
}

// QueryCompleted asks the driver whether p, which must be recorded, is completed,
// and notes it. A yes is followed by a synchronise with the event, which returns
// at once: only that tells the driver's allocator, which keeps freed memory
// otherwise, and tools such as compute-sanitizer, that what the host does next
// comes after.
func (s *Stream) QueryCompleted(p *Point) (bool, error) {
	if p.isCompleted() {
		return true, nil
	}
	done, err := s.port.EventQuery(p.event)
	if err == nil && done {
		err = s.port.EventSynchronize(p.event)
	}
	if err != nil || !done {
		return false, err
	}
	s.NoteCompleted(p.seq)
	p.noteClockCompleted()
	return true, nil
}

// QueryMark is QueryCompleted for the mark behind frees. If the host has learned
// by a point of another stream that the mark is completed, no call has told the
// driver's allocator yet.
func (s *Stream) QueryMark(mark *Point) (bool, error) {
	learned := mark.isCompleted()
	done, err := s.QueryCompleted(mark)
	if learned && mark.state.Load() != synthetic {
		err = s.port.EventSynchronize(mark.event)
	}
	return done && err == nil, err
}

// NoteCompleted notes that the device has completed everything up to seq.
func (s *Stream) NoteCompleted(seq uint64) {
	for {
		old := s.completed.Load()
		if old >= seq || s.completed.CompareAndSwap(old, seq) {
			return
		}
	}
}
