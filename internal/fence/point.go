package fence

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Point is one point of a stream: the end of a launch, a recorded use, the
// readiness of allocations, a mark behind queued frees, or the end of a stream
// that was given up. It is shared by all the blocks
// of its launch and goes back to its stream's free list when no reference is left to
// it: an access of a block does, and so does a preparer until its wait has
// been queued. Its event may then be recorded anew, which moves no
// wait that was queued before.
//
// A launch has its point from the moment it is announced, so that announcing
// it on its blocks is all that is done block by block: its end changes the
// state of the point, and the next look at a block sees that.
type Point struct {
	event  driver.Event
	stream *Stream
	state  atomic.Uint32
	refs   atomic.Int32
	// detached: it is no point of the stream's list, but stands for one that was
	// given back, or for none. Its state is synthetic for good.
	detached bool
	// rest is how many references of a launch no block has: those of the blocks that it was not announced on.
	rest int32
	// crossStream: of a launch, another stream's wrote one of its blocks last.
	crossStream bool
	// own: the launch has what its stream has for one at a time.
	own bool
	// endsAs is the state that the launch ends in unless it is withdrawn: it is known before the launch
	// ends.
	endsAs state

	// lease is the id under which the work is enqueued, launch its number
	// (0 for anything else, see isLaunch), name its name.
	lease  core.StreamID
	launch uint64
	name   string

	// seq and clock are set before the state says that it is placed: the place in
	// the stream's order, and its clock there, seq included. A stream that waits
	// for the point is ordered after all of it.
	seq   uint64
	clock clock

	// plan is the preparer's, while it prepares.
	plan Plan

	// mu is held while a deferred record is made, and guards what follows.
	mu sync.Mutex
	// ended is closed when the launch ends, for those who wait for that.
	ended chan struct{}
	_     [48]byte // points share no cache line
}

// state is where a point stands. The table of all of them and of what moves them is
// in the package comment.
type state = uint32

const (
	// announced: the launch has not ended. watched: and a caller wants to be
	// told when it does.
	announced state = iota
	watched
	// withdrawn: the launch was not enqueued.
	withdrawn
	// deferred: the point has its place in the stream's order, which is seq and
	// clock, and the driver was not asked to record its event yet.
	deferred
	// recorded: it has its place, and its event is recorded there.
	recorded
	// synthetic: it has its place, and no event. It is not waited for: what lies before
	// is completed, or its blocks are poisoned.
	synthetic
)

func newPoint(s *Stream, event driver.Event) *Point {
	return &Point{event: event, stream: s, clock: newClock(), plan: newPlan()}
}

// IsOpen reports whether it is of a launch that has not ended.
func (p *Point) IsOpen() bool { return p.state.Load() <= watched }

// IsDeferred reports whether its record is still to be made.
func (p *Point) IsDeferred() bool { return p.state.Load() == deferred }

func (p *Point) isPlaced() bool    { return p.state.Load() >= deferred }
func (p *Point) isWithdrawn() bool { return p.state.Load() == withdrawn }

// end closes an announced launch, and reports whether it is watched: one who
// waits for its channel, or a retired block whose free must come after the launch.
func (p *Point) end(to state) (wasWatched bool) {
	if p.state.Swap(to) != watched {
		return false
	}
	return p.tellWatcher()
}

func (p *Point) tellWatcher() bool {
	p.mu.Lock()
	if p.ended != nil {
		close(p.ended)
		p.ended = nil
	}
	p.mu.Unlock()
	p.Release() // the one of watch
	return true
}

// watch makes the launch tell of its end; false if it has ended. The caller
// holds a reference. The launch gets another one, with which its end looks at the point once more.
func (p *Point) watch() bool {
	if p.state.Load() == announced {
		p.Retain()
		if p.state.CompareAndSwap(announced, watched) {
			return true
		}
		p.Release()
	}
	return p.state.Load() == watched
}

// waitEnded returns a channel that is closed when the launch has ended.
func (p *Point) waitEnded() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.watch() {
		return closedChannel
	}
	if p.ended == nil {
		p.ended = make(chan struct{})
	}
	return p.ended
}

var closedChannel = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// isLaunch reports whether it is the end of a launch, and not of an allocation, a
// mark or a recorded use.
func (p *Point) isLaunch() bool { return p.launch != 0 }

// launchName is the launch's name, if it is one.
func (p *Point) launchName() string {
	if !p.isLaunch() {
		return ""
	}
	return p.name
}

// Stream is the stream whose point it is.
func (p *Point) Stream() *Stream { return p.stream }

// Lease is the id under which its work is enqueued.
func (p *Point) Lease() core.StreamID { return p.lease }

// Retain takes another reference, for a caller that has one.
func (p *Point) Retain() { p.refs.Add(1) }

// tryRetain takes a reference unless there is none left.
func (p *Point) tryRetain() bool {
	for {
		n := p.refs.Load()
		if n == 0 {
			return false
		}
		if p.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives up a reference. No block may be locked: the last reference on a point of
// a stream that is gone has the driver destroy its event.
func (p *Point) Release() { p.ReleaseMany(1) }

// ReleaseMany gives up n references.
func (p *Point) ReleaseMany(n int32) {
	if p.lose(n) {
		p.stream.points.put(p)
	}
}

// lose takes n references off and reports whether none is left. Those on a launch's point that are all need not be counted
// down; of a final point, which is no launch's, [Stream.RetainFinal] may look at the count when none is left.
func (p *Point) lose(n int32) bool { return p.isLaunch() && p.refs.Load() == n || p.refs.Add(-n) == 0 }

// isCompleted reports whether the host already knows that the device has
// completed the point, which must have its place. It makes no driver call.
func (p *Point) isCompleted() bool { return p.stream.completed.Load() >= p.seq }

// needsNoWait reports whether no stream needs to wait for it on the device, because
// the host knows that it is completed.
func (p *Point) needsNoWait() bool {
	return p.isCompleted() && (!p.stream.order.deviceOrder || p.state.Load() == synthetic)
}

// noteClockCompleted notes what the device must have completed on other streams
// before it came to p: all that p's clock covers.
func (p *Point) noteClockCompleted() { p.stream.order.noteCompleted(p.clock) }

// newSynthetic is a point of s at the place of seq and clock that is completed: it
// stands for one whose event is given back, or for none that could be recorded.
func newSynthetic(s *Stream, lease core.StreamID, seq uint64, c clock) *Point {
	p := &Point{stream: s, detached: true, lease: lease, seq: seq, clock: newClock().copyFrom(c)}
	p.refs.Store(1)
	p.state.Store(synthetic)
	return p
}
