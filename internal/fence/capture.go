package fence

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
// A leased stream captures through the runtime, which sets a flag of the
// stream's under its lock, and refuses if anybody has entered the stream; who
// enqueues without the lock (a launch, a copy, the guard) enters before it looks
// at the flag, and leaves when that is done. So at least one of the two sees the
// other, and a launch pays one load. Everything else looks at the flag under the
// lock.
//
// A stream of another library may capture behind the runtime's back, or be
// drawn into a capture by a wait: an adopted stream, and the default stream, on
// which nothing may be done while a stream that synchronises with it captures.
// The driver is asked before each call that would name such a stream. Its
// owner must not begin a capture while such a call is under way. An operation on the
// default stream that makes no such call asks nothing: that stream itself cannot capture.
//
// The end of a capture cannot be waited for, so nothing waits: work is refused,
// and what must not be lost (a free, the end of a launch that was announced
// before the capture began) waits until the capture has ended, in package cuda: a free
// in its stream's free queue, an end in the backlog.

// ErrCapturing is why something was not done yet.
var ErrCapturing = errors.New("the stream is capturing")

// AsksDriver reports whether the stream may capture without the runtime.
func (s *Stream) AsksDriver() bool { return s.asksDriver }

// Capturing reports whether the stream is part of a capture of the runtime's. It is
// exact while the stream is locked.
func (s *Stream) Capturing() bool { return s.capturing.Load() }

// KeepOut makes everybody else keep out of s, except those who have entered. A
// deferred record is made before or not at all. The stream must be locked.
func (s *Stream) KeepOut() {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.capturing.Store(true)
}

// LetIn ends KeepOut.
func (s *Stream) LetIn() { s.capturing.Store(false) }

// QueryCapturing asks the driver. One that cannot say cannot capture.
func (s *Stream) QueryCapturing() (bool, error) {
	capturing, err := s.port.StreamCapturing(s.handle)
	if err == nil {
		return capturing, nil
	}
	var e *core.DriverError
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return false, nil
	case errors.As(err, &e) && e.Code == driver.CaptureImplicit:
		return true, nil
	}
	return false, err
}

// Uncaptured returns [ErrCapturing] if nothing may be enqueued on s, nil if it
// may. Of captures of the runtime's it is exact while s is locked. s must not have been
// given up. Other errors are the driver's.
func (s *Stream) Uncaptured() error {
	if !s.asksDriver && !s.capturing.Load() {
		return nil
	}
	return s.lookForCapture()
}

// lookForCapture is Uncaptured of a stream that may capture.
func (s *Stream) lookForCapture() error {
	capturing, err := s.capturing.Load(), error(nil)
	if !capturing && s.asksDriver {
		capturing, err = s.QueryCapturing()
	}
	if capturing {
		return ErrCapturing
	}
	return err
}

// RefuseCaptured is Uncaptured with an error for the caller of op.
func (s *Stream) RefuseCaptured(op string, id core.StreamID) error {
	if !s.asksDriver && !s.capturing.Load() {
		return nil
	}
	return s.refuse(op, id)
}

// refuse is RefuseCaptured of a stream that may capture.
func (s *Stream) refuse(op string, id core.StreamID) error {
	if err := s.lookForCapture(); !errors.Is(err, ErrCapturing) {
		return err
	}
	reason := fmt.Sprintf("stream %v is capturing, and what the runtime enqueues would become part of the graph: do this before or after the capture. "+
		"Inside of it enqueue on the handle (Kernel.Enqueue) and declare the blocks to Lease.Capture: launches of the graph are fenced for them", id)
	if id == core.DefaultStream {
		reason = "a stream that synchronises with the default stream is capturing: use a leased stream, or wait until the capture has ended"
	}
	return &core.StreamMisuseError{Op: op, Stream: id, Reason: reason, Capturing: true}
}

// Recordable returns nil if an event may be recorded on s, as well as can be
// told: [ErrCapturing] if not, and a driver's error if it cannot be told even at
// the second try. A stream that the driver does not know, or of a device that is
// lost, captures nothing: the record will say what is wrong.
func (s *Stream) Recordable() error {
	err := s.Uncaptured()
	if err != nil && !errors.Is(err, ErrCapturing) {
		err = s.Uncaptured() // others may be waiting for the end of the launch
	}
	if capturesNothing(err) {
		return nil
	}
	return err
}

func capturesNothing(err error) bool {
	var d *core.DriverError
	if !errors.As(err, &d) {
		return false
	}
	switch d.Code {
	case driver.InvalidHandle, driver.InvalidContext, driver.InvalidValue, driver.Deinitialized:
		return true
	}
	return d.Sticky
}
