package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// event is one point of a stream: the end of a launch, a recorded use, the
// readiness of allocations, a mark behind queued frees, or the end of a stream
// that was given up. It is shared by all the blocks
// of its launch and goes back to its stream's free list when nobody refers to
// it: an access of a block does, and so does a preparer until its wait has
// been queued. A driver's event may then be recorded anew, which moves no
// wait that was queued before.
//
// A launch has its event from the moment it is announced, so that announcing
// it on its blocks is all that is done block by block: its end changes the
// state of the event, and whoever looks at a block next sees that.
type event struct {
	handle driver.Event
	stream *stream
	state  atomic.Uint32
	refs   atomic.Int32
	// deferred: it is placed, and the driver was not asked to record it yet.
	deferred atomic.Bool
	// synthetic: it has no event of the driver's, and is completed.
	synthetic bool

	// lease is the id under which the work is enqueued, launch its number
	// (0 for anything else, see isLaunch), name its name.
	lease  core.StreamID
	launch uint64
	name   string

	// seq and clock are set before the state becomes placed: the place in
	// the stream's order, and its clock there, seq included. Whoever waits
	// for the event is ordered after all of it.
	seq   uint64
	clock clock

	// fence is the preparer's, while it prepares.
	fence fence

	// mu is held while a deferred event is recorded, and guards what follows.
	mu sync.Mutex
	// ended is closed when the launch ends, for those who wait for that.
	ended chan struct{}
	// blockedFrees are retired blocks whose free the launch blocks.
	blockedFrees []*block
	_            [56]byte // events share no cache line
}

func newEvent(s *stream, handle driver.Event) *event {
	return &event{handle: handle, stream: s, clock: newClock(), fence: newFence()}
}

// The states of an event. A launch's begins announced, becomes watched if somebody
// waits for the launch's end, and ends placed or withdrawn. Every other event begins
// placed. Two more steps are no states of this word:
//
//   - placed, it is recorded unless deferred is set: the driver has been asked to
//     record it, or it is synthetic and needs no record;
//   - it is completed when the stream's completed number has reached seq, which is
//     known by stream and number, so that it holds for whoever has used the event
//     since.
const (
	// announced: the launch has not ended. watched: and somebody wants to be
	// told when it does.
	announced uint32 = iota
	watched
	// placed: it has its place in the stream's order, which is seq and clock.
	placed
	// withdrawn: the launch was not enqueued.
	withdrawn
)

func (e *event) isOpen() bool      { return e.state.Load() <= watched }
func (e *event) isPlaced() bool    { return e.state.Load() == placed }
func (e *event) isWithdrawn() bool { return e.state.Load() == withdrawn }

// end closes an announced launch and returns the blocks whose free it blocked.
func (e *event) end(state uint32) []*block {
	if e.state.Swap(state) != watched {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended != nil {
		close(e.ended)
		e.ended = nil
	}
	blocked := e.blockedFrees
	e.blockedFrees = nil
	return blocked
}

// watch makes the launch tell of its end; false if it has ended. The caller
// holds e.mu and a reference.
func (e *event) watch() bool {
	return e.state.CompareAndSwap(announced, watched) || e.state.Load() == watched
}

// waitEnded returns a channel that is closed when the launch has ended.
func (e *event) waitEnded() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.watch() {
		return closedChannel
	}
	if e.ended == nil {
		e.ended = make(chan struct{})
	}
	return e.ended
}

var closedChannel = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// blockFree makes the launch block the free of b; false if it has ended.
func (e *event) blockFree(b *block) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.watch() {
		return false
	}
	e.blockedFrees = append(e.blockedFrees, b)
	return true
}

// isLaunch reports whether it is the end of a launch, and not of an allocation, a
// mark or a recorded use.
func (e *event) isLaunch() bool { return e.launch != 0 }

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

func (e *event) release() { e.releaseMany(1) }

func (e *event) releaseMany(n int32) {
	if e.refs.Add(-n) == 0 {
		e.stream.events.put(e)
	}
}

// isCompleted reports whether the host already knows that the device has
// completed the event, which must have its place. It makes no driver call.
func (e *event) isCompleted() bool { return e.stream.completed.Load() >= e.seq }

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

// get returns an event with as many references.
func (l *eventList) get(s *stream, refs int32) (*event, error) {
	e := l.take()
	if e == nil {
		handle, err := s.drv.EventCreate()
		if err != nil {
			return nil, err
		}
		l.made.Add(1)
		e = newEvent(s, handle)
	}
	e.refs.Store(refs)
	if e.deferred.Load() {
		e.deferred.Store(false) // nobody came to need it
	}
	return e, nil
}

// take returns a free event, nil if there is none.
func (l *eventList) take() *event {
	if e := l.spare.Swap(nil); e != nil {
		return e
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.free)
	if n == 0 {
		return nil
	}
	e := l.free[n-1]
	l.free = l.free[:n-1]
	return e
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
	if e.synthetic {
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
