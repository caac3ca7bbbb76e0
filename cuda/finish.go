package cuda

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
)

// FinishUse records the launch's event. The blocks hold it since the launch
// was announced, so nothing is done to them here.
func (r *AsyncResource) FinishUse(_ context.Context, t core.Ticket) error {
	in, err := t.End(r, "FinishUse")
	if err != nil {
		return err
	}
	e := pointOf(in)
	s := e.stream
	if in.Trace != nil {
		noteSpans(in, e)
	}
	if len(in.Uses) > 0 {
		backlogged := false
		if s.queriesCapture {
			backlogged, err = r.finishOrBacklog(backlogEnd{in: in})
		} else {
			err = r.finish(s, in, e)
		}
		if backlogged {
			return err
		}
	}
	r.launched(in)
	return err
}

// launched closes the intent of a launch that is fenced.
func (r *AsyncResource) launched(in *core.Intent) {
	s := pointOf(in).stream
	s.books.launches.Add(1)
	if in.CrossStream {
		s.books.crossStream.Add(1)
	}
	r.endLaunch(in, placed)
}

func (r *AsyncResource) finish(s *stream, in *core.Intent, e *event) error {
	s.mu.Lock()
	if s.coveredBy(&e.fence) {
		s.detach()
	}
	err := s.recordIn(e)
	if err == nil {
		s.flights.note(in, e.seq)
	}
	s.mu.Unlock()
	if err != nil {
		return r.finishUnrecorded(s, in, e, err)
	}
	return nil
}

// endLaunch closes the intent as enqueued or withdrawn, and frees the blocks
// whose free nothing else blocks.
func (r *AsyncResource) endLaunch(in *core.Intent, state uint32) {
	e := pointOf(in)
	s := e.stream
	for _, b := range e.end(state) {
		b.mu.Lock()
		b.blockers--
		due := b.blockers == 0 && !b.poisoned
		b.mu.Unlock()
		if due {
			r.freeUnblocked(b)
		}
	}
	e.release()
	s.leave()
	in.Recycle()
}

// noteSpans hands the spans of the uses to those who will wait for them.
func noteSpans(in *core.Intent, e *event) {
	for i := range in.Uses {
		b := blockOf(&in.Uses[i])
		b.mu.Lock()
		for j := range b.accesses {
			if b.accesses[j].event == e {
				b.accesses[j].span = in.Uses[i].Span
			}
		}
		b.mu.Unlock()
	}
}

// finishUnrecorded fences a launch whose event the driver refused to record.
func (r *AsyncResource) finishUnrecorded(s *stream, in *core.Intent, e *event, cause error) error {
	s.books.fails.Add(1)
	err := r.fenceBySync(s, cause, func() {
		for i := range in.Uses {
			b := blockOf(&in.Uses[i])
			b.mu.Lock()
			r.streams.table.poison(b)
			b.mu.Unlock()
		}
	})
	// A place that counts as completed, so that nobody waits for it: after the
	// synchronise that is true, and without it the blocks are poisoned.
	e.seq = s.completed.Load()
	e.clock = e.clock[:0].set(s.slot, e.seq)
	return err
}

// fenceBySync fences work by the strongest means left: it waits on the host
// until the stream is done, so that everything enqueued later is ordered
// after it. If that fails too, lost is called: the work stays unfenced and
// its blocks must never be used or freed again.
func (r *AsyncResource) fenceBySync(s *stream, cause error, lost func()) error {
	s.mu.Lock()
	here := syntheticPoint(s, &event{seq: s.point(), clock: s.clock})
	s.mu.Unlock()
	syncErr := r.drv.StreamSynchronize(s.handle)
	if syncErr == nil {
		s.noteCompleted(here.seq)
		here.noteClockCompleted()
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
