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
	// spare is one free event, handed over without the lock: an allocation
	// and a free in turn need no more.
	spare atomic.Pointer[event]
	// closed: the stream is gone, so events are destroyed when they come back.
	closed atomic.Bool
	made   atomic.Int64

	mu   sync.Mutex
	free []*event
}

// get returns an event with one reference.
func (l *eventList) get(s *stream) (*event, error) {
	if e := l.spare.Swap(nil); e != nil {
		e.refs.Store(1)
		return e, nil
	}
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
	e := &event{handle: handle, stream: s, clock: newClock()}
	e.refs.Store(1)
	return e, nil
}

func (l *eventList) put(e *event) {
	if l.spare.CompareAndSwap(nil, e) {
		if !l.closed.Load() || !l.spare.CompareAndSwap(e, nil) {
			return // kept, or taken over by close
		}
	} else if l.keep(e) {
		return
	}
	_ = l.destroy(e) // the stream is gone, nobody could be told
}

// keep adds e to the list unless that is closed.
func (l *eventList) keep(e *event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return false
	}
	l.free = append(l.free, e)
	return true
}

func (l *eventList) destroy(e *event) error {
	if e.handle == 0 {
		return nil
	}
	if err := e.stream.drv.EventDestroy(e.handle); err != nil {
		l.mu.Lock()
		l.free = append(l.free, e) // for the next close
		l.mu.Unlock()
		return err
	}
	l.made.Add(-1)
	return nil
}

// close gives the free events back to the driver, and the others as they are
// released. It returns the first error, and may be called again after one.
func (l *eventList) close() error {
	l.mu.Lock()
	l.closed.Store(true)
	free := l.free
	l.free = nil
	l.mu.Unlock()
	if e := l.spare.Swap(nil); e != nil {
		free = append(free, e)
	}
	var first error
	for _, e := range free {
		if err := l.destroy(e); err != nil && first == nil {
			first = err
		}
	}
	return first
}
