package fence

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
)

// A stream is given up when its handle may not be named any more: an adopted one was
// released, one of the pool's is about to be destroyed. Its final point stands for all
// of its work from then on, and what would have been enqueued there is enqueued
// elsewhere behind that point.

// IsGivenUp reports whether no call may name the stream's handle any more.
func (s *Stream) IsGivenUp() bool { return s.final.Load() != nil }

// GiveUp records the final point. If no event can be recorded the stream is
// synchronised, and the point is synthetic. The stream must be locked. Errors are
// [core.StreamMisuseError] on a stream that captures, which a synchronisation would
// invalidate, and otherwise the driver's two; the stream is as it was then.
func (s *Stream) GiveUp(lease core.StreamID) error {
	final, err := s.Record(lease)
	if errors.Is(err, core.ErrStreamMisuse) {
		return err
	}
	if err != nil {
		if syncErr := s.port.StreamSynchronize(s.handle); syncErr != nil {
			return errors.Join(err, syncErr)
		}
		final = s.completeHere(lease)
		s.renounce()
	}
	s.final.Store(final)
	return nil
}

// LetGo gives up a stream whose work is all done, before it is destroyed: the driver
// may give its handle to the next stream that anybody makes. The stream must be locked.
func (s *Stream) LetGo() {
	final := s.completeHere(core.DefaultStream)
	s.renounce()
	s.final.Store(final)
}

// completeHere is a synthetic point behind everything, which is known to be completed.
func (s *Stream) completeHere(lease core.StreamID) *Point {
	here := newSynthetic(s, lease, s.Here(), s.clock)
	s.NoteCompleted(here.seq)
	here.noteClockCompleted()
	return here
}

// RetainFinal returns the final point with a reference, nil if the stream was not given
// up.
func (s *Stream) RetainFinal() *Point {
	final := s.final.Load()
	for final != nil && !final.tryRetain() {
		final = s.final.Load() // DropFinalEvent has just replaced it
	}
	return final
}

// FinalOrRecord returns the final point, or records one; the stream must be locked.
// Either has a reference of the caller's. Errors are [ErrCapturing] and the driver's.
func (s *Stream) FinalOrRecord(lease core.StreamID) (*Point, error) {
	if final := s.final.Load(); final != nil {
		final.Retain()
		return final, nil
	}
	if err := s.Uncaptured(); err != nil {
		return nil, err
	}
	return s.Record(lease)
}

// FinalCompleted reports whether the work of a stream that was given up is completed;
// the stream must be locked, so that the event is not given back meanwhile.
func (s *Stream) FinalCompleted() (bool, error) { return s.QueryCompleted(s.final.Load()) }

// DropFinalEvent gives back the event at the final point, once no stream needs to
// wait for it; the stream must be locked.
func (s *Stream) DropFinalEvent() {
	if final := s.final.Load(); final != nil && !final.detached {
		s.final.Store(newSynthetic(s, final.lease, final.seq, final.clock))
		final.Release()
	}
}

// CloseEvents gives up the ready point, which is not needed any more, and gives the events
// of the stream back to the driver, those in use when they are released. The stream must
// be locked. It returns the driver's first error and may be called again after one.
func (s *Stream) CloseEvents() error {
	s.detach()
	s.points.closed.Store(true) // before the spare point is sought: the end of a launch that has it looks behind that
	s.giveSpare()
	return s.points.close()
}

// EventsClosed reports whether CloseEvents was called, so that nothing may be recorded any
// more; the stream must be locked.
func (s *Stream) EventsClosed() bool { return s.points.closed.Load() }
