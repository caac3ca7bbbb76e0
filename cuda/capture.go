package cuda

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// A stream that captures records what is enqueued on it in a graph and does not
// run it. An event of the runtime's recorded there would stand for nothing that
// ever runs, a wait would make another stream part of the capture, and a
// query would invalidate it. So the runtime enqueues nothing on such a stream.
//
// # The protocol
//
// A leased stream captures through [Lease.Capture]. It sets a flag of the
// stream's under its lock, and refuses if anybody has entered the stream; who
// enqueues without the lock (a launch, a copy, the guard) enters before it looks
// at the flag, and leaves when that is done. So at least one of the two sees the
// other, and a launch pays one load. Everything else looks at the flag under the
// lock.
//
// A stream of somebody else's may capture behind the runtime's back, or be
// drawn into a capture by a wait: an adopted stream, and the default stream, on
// which nothing may be done while a stream that synchronises with it captures.
// The driver is asked before each call that would name such a stream. Its
// owner must not begin a capture while such a call is under way.
//
// Nobody can wait for the end of a capture, so nothing does: work is refused,
// and what must not be lost (a free, the end of a launch that was announced
// before the capture began) waits in a backlog until the capture has ended; see
// captureBacklog.

// errCapturing is why something was not done yet.
var errCapturing = errors.New("the stream is capturing")

// isCapturing reports whether nothing may be enqueued on s. Of captures of the
// runtime's it is exact while s.mu is held. s must not have been given up.
func (s *stream) isCapturing() (bool, error) {
	if s.capturing.Load() {
		return true, nil
	}
	if !s.queriesCapture {
		return false, nil
	}
	return s.queryCapturing()
}

// queryCapturing asks the driver. One that cannot say cannot capture.
func (s *stream) queryCapturing() (bool, error) {
	capturing, err := s.drv.StreamCapturing(s.handle)
	var e *core.DriverError
	switch {
	case err == nil:
		return capturing, nil
	case errors.Is(err, errors.ErrUnsupported):
		return false, nil
	case errors.As(err, &e) && e.Code == driver.CaptureImplicit:
		return true, nil
	}
	return false, err
}

// uncaptured returns errCapturing if nothing may be enqueued on s, nil if it
// may.
func (s *stream) uncaptured() error {
	if !s.queriesCapture && !s.capturing.Load() {
		return nil
	}
	return s.lookForCapture()
}

func (s *stream) lookForCapture() error {
	capturing, err := s.isCapturing()
	if capturing {
		return errCapturing
	}
	return err
}

// refuseCaptured is uncaptured with an error for the caller of op.
func (s *stream) refuseCaptured(op string, id core.StreamID) error {
	if !s.queriesCapture && !s.capturing.Load() {
		return nil
	}
	return s.refuse(op, id)
}

func (s *stream) refuse(op string, id core.StreamID) error {
	err := s.lookForCapture()
	if errors.Is(err, errCapturing) {
		return captureRefusal(op, id)
	}
	return err
}

func captureRefusal(op string, id core.StreamID) error {
	reason := fmt.Sprintf("stream %v is capturing, and what the runtime enqueues would become part of the graph: do this before or after the capture. "+
		"Inside of it enqueue on the handle (Kernel.Enqueue) and declare the blocks to Lease.Capture: launches of the graph are fenced for them", id)
	if id == core.DefaultStream {
		reason = "a stream that synchronises with the default stream is capturing: use a leased stream, or wait until the capture has ended"
	}
	return &core.StreamMisuseError{Op: op, Stream: id, Reason: reason, Capturing: true}
}

// unlessCapturing is err, or nil if that is just a capture under way.
func unlessCapturing(err error) error {
	if errors.Is(err, errCapturing) {
		return nil
	}
	return err
}

// enterUncaptured is enter for work that must not go into a graph: until the
// caller leaves, no capture of the runtime's begins on the stream.
func (t *streamTable) enterUncaptured(op string, id core.StreamID) (*stream, error) {
	s, err := t.enter(op, id)
	if err != nil {
		return nil, err
	}
	if err := s.refuseCaptured(op, id); err != nil {
		s.leave()
		return nil, err
	}
	return s, nil
}

// mayRelease refuses to give back a stream that is capturing: the next taker's
// work would go into the graph, or what it is told of it be wrong. An adopted
// stream with launches open is refused as well, and again when its id is off.
// It takes the stream's lock only to end a capture that could not be ended: a
// capture that begins meanwhile sees that the lease is released, or is seen
// here.
func (l *Lease) mayRelease() error {
	s := l.stream
	if l.adopted && s.open.Load() > 0 {
		return stillOpen(l.id)
	}
	if s.stuck.Load() {
		if err := l.endStuck(); err != nil {
			return err
		}
	}
	capturing := s.capturing.Load()
	if !capturing { // it may have begun on the handle
		capturing, _ = s.queryCapturing() // who does not look at the error of a Release must not lose the stream
	}
	if capturing {
		return &core.StreamMisuseError{Op: "Release", Stream: l.id, Reason: fmt.Sprintf("stream %v is capturing: end the capture first. One that the driver would not end is ended by releasing the lease that it began on", l.id)}
	}
	return nil
}

func (l *Lease) endStuck() error {
	l.stream.mu.Lock()
	defer l.stream.mu.Unlock()
	return l.stream.endStuck(l.pool)
}
