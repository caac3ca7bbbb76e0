package cuda

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
)

// FinishUse records one event for the launch and adds it to every block as
// the newest use, dropping what it covers.
func (r *AsyncResource) FinishUse(_ context.Context, t core.Ticket) error {
	in, err := t.End(r, "FinishUse")
	if err != nil {
		return err
	}
	s := in.Handle.(*stream)
	if len(in.Uses) > 0 {
		err = r.finish(s, in)
	}
	s.books.launches.Add(1)
	if in.CrossStream {
		s.books.crossStream.Add(1)
	}
	s.open.Add(-1)
	in.Recycle()
	return err
}

func (r *AsyncResource) finish(s *stream, in *core.Intent) error {
	s.mu.Lock()
	e, err := s.record(in.Stream)
	s.mu.Unlock()
	if err != nil {
		return r.finishUnrecorded(s, in, err)
	}
	for i := range in.Uses {
		r.finishBlock(s, in, &in.Uses[i], e)
	}
	e.release()
	return nil
}

func (r *AsyncResource) finishBlock(s *stream, in *core.Intent, u *core.PreparedUse, e *event) {
	b := u.Handle.(*block)
	b.mu.Lock()
	b.finished(access{event: e, kind: u.Access, span: u.Span})
	if u.Access.Writes() {
		b.writer = s
	}
	r.endIntent(in, b)
}

// finishUnrecorded fences a launch whose event the driver refused to record.
func (r *AsyncResource) finishUnrecorded(s *stream, in *core.Intent, cause error) error {
	s.books.fails.Add(1)
	poison := false
	err := r.fenceBySync(s, cause, func() { poison = true })
	for i := range in.Uses {
		b := in.Uses[i].Handle.(*block)
		b.mu.Lock()
		if poison {
			r.poison(b)
		}
		if in.Uses[i].Access.Writes() {
			b.writer = s
		}
		r.endIntent(in, b)
	}
	return err
}

// fenceBySync fences work by the strongest means left: it waits on the host
// until the stream is done, so that everything enqueued later is ordered
// after it. If that fails too, lost is called: the work stays unfenced and
// its blocks must never be used or freed again.
func (r *AsyncResource) fenceBySync(s *stream, cause error, lost func()) error {
	s.mu.Lock()
	seq := s.seq
	s.mu.Unlock()
	syncErr := r.drv.StreamSynchronize(s.handle)
	if syncErr == nil {
		s.passed(seq)
		return detail(cause, "the launch was fenced by synchronising its stream")
	}
	lost()
	return errors.Join(detail(cause, "the launch could not be fenced: its blocks are poisoned and can be neither used nor reused until the device is reset"), syncErr)
}

// detail adds to a driver's error what the runtime did about it.
func detail(err error, text string) error {
	var d *core.DriverError
	if !errors.As(err, &d) {
		return err
	}
	with := *d
	with.Detail = text
	return &with
}

// poison marks a block as beyond use; b.mu must be held.
func (r *AsyncResource) poison(b *block) {
	if !b.poisoned {
		b.poisoned = true
		r.poisoned.Add(1)
	}
}
