package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// event is one recorded point of a stream: the end of a launch, the readiness
// of an allocation, or a mark behind queued frees. It is shared by all the
// blocks of its launch and goes back to its stream's free list when nobody
// refers to it: an access of a block does, and so does a preparer until its
// wait has been queued. A driver's event may then be recorded anew, which
// moves no wait that was queued before.
type event struct {
	handle driver.Event
	stream *stream
	// lease is the id under which the work was enqueued.
	lease core.StreamID
	seq   uint64
	// clock is the stream's clock at the record, seq included: whoever
	// waits for the event is ordered after all of it.
	clock clock
	refs  atomic.Int32
}

func (e *event) retain() { e.refs.Add(1) }

// tryRetain takes a reference unless there is none left.
func (e *event) tryRetain() bool {
	for {
		n := e.refs.Load()
		if n == 0 {
			return false
		}
		if e.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (e *event) release() {
	if e.refs.Add(-1) == 0 {
		e.stream.events.put(e)
	}
}

// done reports whether the reaper has already seen the event complete. It
// makes no driver call.
func (e *event) done() bool { return e.stream.completed.Load() >= e.seq }

// eventList is the free list of one stream's events. It has its own lock, so
// that giving back an event never waits for a driver call.
type eventList struct {
	mu   sync.Mutex
	free []*event
	// closed: the stream is gone, so events are destroyed when they come back.
	closed bool
	made   atomic.Int64
}

// get returns an event with one reference.
func (l *eventList) get(s *stream) (*event, error) {
	l.mu.Lock()
	if n := len(l.free); n > 0 {
		e := l.free[n-1]
		l.free = l.free[:n-1]
		l.mu.Unlock()
		e.refs.Store(1)
		return e, nil
	}
	l.mu.Unlock()
	handle, err := s.drv.EventCreate()
	if err != nil {
		return nil, err
	}
	l.made.Add(1)
	e := &event{handle: handle, stream: s}
	e.refs.Store(1)
	return e, nil
}

func (l *eventList) put(e *event) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.free = append(l.free, e)
	}
	l.mu.Unlock()
	if closed && e.handle != 0 {
		_ = e.stream.drv.EventDestroy(e.handle)
		l.made.Add(-1)
	}
}

// close gives the free events back to the driver, and the others as they are
// released. It returns the first error.
func (l *eventList) close(drv driver.Driver) error {
	l.mu.Lock()
	free := l.free
	l.free, l.closed = nil, true
	l.mu.Unlock()
	var first error
	for _, e := range free {
		if err := drv.EventDestroy(e.handle); err != nil && first == nil {
			first = err
		}
		l.made.Add(-1)
	}
	return first
}
