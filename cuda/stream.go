package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// stream is a physical stream of the driver with what the runtime knows of
// its order. Leases come and go on it; clock, sequence and pending frees
// belong to the stream.
type stream struct {
	_      [64]byte // streams share no cache line
	drv    driver.Driver
	handle driver.Stream
	table  *streamTable
	// slot is the stream's place in vector clocks. A slot is used again only
	// after all work of its former stream is done, and goes on counting
	// where that stopped.
	slot int
	// deviceOrder: that the host knows something to be completed orders nothing.
	deviceOrder bool

	// gate is held while a deferred event is recorded, which needs no other lock of
	// the stream, and while a capture begins to keep others out.
	gate sync.Mutex

	mu    sync.Mutex
	seq   uint64
	clock clock
	// readyPoint is the event behind the allocations since anything else was
	// enqueued, while its record may still be deferred; see readiness.go. sealed:
	// no further allocation may share it.
	readyPoint *event
	sealed     bool
	// queue is the frees that are not known to be completed, oldest first; mark
	// is the recorded event behind its first marked entries.
	queue  []pending
	mark   *event
	marked int
	// dequeuedBytes is the bytes of the frees that left queue.
	dequeuedBytes uint64
	// pins are the host buffers of copies under way, oldest first.
	pins    []pin
	flights flights
	// newest holds, by slot, the newest dependency of the prepare under way.
	newest []dependency
	slots  []int

	// operations and freedBytes count since the last look at queue.
	operations int
	freedBytes uint64
	// calls is what a census wants to know of the stream.
	calls callCounts
	// freeAttempts is how many frees ever began to queue something. One that failed may
	// have queued its waits.
	freeAttempts uint64

	completed atomic.Uint64
	// queued is the length of queue, pinned that of pins, open the number of
	// open intents.
	queued, pinned, open atomic.Int64
	frees                freeCounters
	events               eventList
	books                *books
	// adopted: the stream is the caller's. It does not change.
	adopted bool
	// capturing: the stream is part of a capture of the runtime's. queriesCapture:
	// it may capture without the runtime, because it is an adopted stream or the
	// default one, so the driver is asked. See capture.go.
	capturing      atomic.Bool
	queriesCapture bool
	// captured are the streams of the capture that began here; stuck: it
	// could not be ended. It changes under mu.
	captured []*stream
	stuck    atomic.Bool
	// finalPoint is the event behind all work of a stream that was given up: no
	// call may name its handle any more. It is nil until then.
	finalPoint atomic.Pointer[event]
	// lease is the last id that the stream was leased under, 0 if none was.
	lease atomic.Uint64
	_     [64]byte
}

// isGivenUp reports whether no call may name the stream's handle any more.
func (s *stream) isGivenUp() bool { return s.finalPoint.Load() != nil }

func newStream(drv driver.Driver, handle driver.Stream, slot int, seq uint64, counters *books) *stream {
	s := &stream{drv: drv, handle: handle, slot: slot, seq: seq, books: counters}
	s.completed.Store(seq)
	s.clock = newClock().set(slot, seq)
	return s
}

// record records an event for work under lease; s.mu must be held. The event
// has one reference.
func (s *stream) record(lease core.StreamID) (*event, error) {
	e, err := s.events.get(s, 1)
	if err != nil {
		return nil, err
	}
	e.lease, e.launch, e.name = lease, 0, ""
	if err := s.recordIn(e); err != nil {
		e.release()
		return nil, err
	}
	e.state.Store(placed)
	return e, nil
}

// recordIn records e and gives it the next place in the stream's order, as
// one step; s.mu must be held. The caller sets the state.
func (s *stream) recordIn(e *event) error {
	if err := s.flush(); err != nil {
		return err
	}
	if err := s.drv.EventRecord(e.handle, s.handle); err != nil {
		return err
	}
	s.place(e)
	return nil
}

// place takes the next sequence number for e and copies the clock into it.
func (s *stream) place(e *event) {
	s.seq++
	s.clock = s.clock.set(s.slot, s.seq)
	e.seq = s.seq
	e.clock = e.clock.copyFrom(s.clock)
}

// wait queues a wait for e and joins its clock, as one step; s.mu must be
// held.
func (s *stream) wait(e *event) error {
	if err := s.flush(); err != nil {
		return err
	}
	if err := s.drv.StreamWait(s.handle, e.handle); err != nil {
		return err
	}
	s.clock = s.clock.join(e.clock)
	return nil
}

// waitPeer queues a wait for another device's event, whose clock means nothing
// here.
func (s *stream) waitPeer(peer driver.Driver, e *event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.flush(); err != nil {
		return err
	}
	return s.drv.StreamWaitPeer(s.handle, peer, e.handle)
}

// queryCompleted asks the driver whether e, which must be recorded, is completed,
// and notes it. A yes is followed by a synchronise with the event, which returns
// at once: only that tells the driver's allocator, which keeps freed memory
// otherwise, and tools such as compute-sanitizer, that what the host does next
// comes after.
func (s *stream) queryCompleted(e *event) (bool, error) {
	if e.isCompleted() {
		return true, nil
	}
	done, err := s.drv.EventQuery(e.handle)
	if err == nil && done {
		err = s.drv.EventSynchronize(e.handle)
	}
	if err != nil || !done {
		return false, err
	}
	s.noteCompleted(e.seq)
	e.noteClockCompleted()
	return true, nil
}

// queryMark is queryCompleted for the mark behind frees. If the host has learned
// by an event of another stream that the mark is completed, nobody has told the
// driver's allocator yet.
func (s *stream) queryMark(mark *event) (bool, error) {
	learned := mark.isCompleted()
	done, err := s.queryCompleted(mark)
	if learned && !mark.synthetic {
		err = s.drv.EventSynchronize(mark.handle)
	}
	return done && err == nil, err
}

// noteClockCompleted notes what the device must have completed on other streams
// before it came to e: all that e's clock covers.
func (e *event) noteClockCompleted() {
	for _, s := range e.stream.table.streams() {
		s.noteCompleted(e.clock.at(s.slot))
	}
}

// needsNoWait reports whether nobody needs to wait for e on the device, because
// the host knows that it is completed.
func (e *event) needsNoWait() bool {
	return e.isCompleted() && (!e.stream.deviceOrder || e.synthetic)
}

// noteCompleted notes that the device has completed everything up to seq.
func (s *stream) noteCompleted(seq uint64) {
	for {
		old := s.completed.Load()
		if old >= seq || s.completed.CompareAndSwap(old, seq) {
			return
		}
	}
}
