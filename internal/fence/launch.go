package fence

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// A launch is announced on its stream and then on each of its blocks (Announce,
// [History.Announce]), made to wait (Fence), finished behind its work (Finish, or
// FinishUnrecorded if that failed) or withdrawn (Withdraw), and then ended (End).
// Preparing and ending may be done by different goroutines, one after the other.

// Announce opens the launch of in: it returns its point, with a reference for each use, which the histories of the blocks get. The
// caller has entered the stream, with what own says, and leaves it when the launch has ended. Errors are the driver's.
func (s *Stream) Announce(in *core.Intent, own bool) (*Point, error) {
	uses := int32(len(in.Uses))
	var p *Point
	if own {
		p, s.ownSpare = s.ownSpare, nil
	}
	if p == nil {
		p = s.points.take()
	}
	p, err := s.pointOf(p, max(1, uses))
	if err != nil {
		return nil, err
	}
	p.own = own
	p.rest = max(1, uses) - uses
	p.lease, p.launch, p.name = in.Stream, in.ID, in.Launch
	p.plan.sharersWritten, p.plan.sharedSeq = 0, 0
	p.crossStream = false
	p.endsAs = recorded
	p.state.Store(announced)
	return p, nil
}

// NotAnnounced says on how many of its blocks the launch is not announced, because one has refused.
func (p *Point) NotAnnounced(uses int) { p.rest = int32(uses) }

// AnnounceRecordedUse is Announce for a use of one block whose work is enqueued and
// cannot be recorded yet. It counts as no launch.
func (s *Stream) AnnounceRecordedUse(in *core.Intent) (*Point, error) {
	p, err := s.Announce(in, false)
	if err == nil {
		p.launch = 0
	}
	return p, err
}

// Marks notes when the device comes to the steps of a launch whose time is to be known. The engine waits for
// nothing that is recorded there: it orders nothing.
type Marks interface {
	// Mark is told of the stream before the first wait of the launch, and after each; at least once. The stream's lock
	// may be held.
	Mark(driver.Stream)
}

// Fence makes the stream wait for what the launch must come after, and notes in the
// intent what it waits for and whether it uses what other streams wrote, which ends the preparation. No block may be locked. marks
// may be nil. Errors are the driver's; some waits may have been queued then.
func (p *Point) Fence(in *core.Intent, marks Marks) error {
	plan := &p.plan
	in.CrossStream = p.crossStream
	if len(plan.deps) == 0 && !p.stream.readies.Load() {
		if marks != nil {
			marks.Mark(p.stream.handle)
		}
		p.dropPlan()
		return nil
	}
	err := plan.flushOthers()
	if err == nil {
		err = p.stream.queueWaits(in, plan, marks)
	}
	if err != nil {
		p.stream.counts.Fails.Add(1)
	}
	p.dropPlan()
	return err
}

// dropPlan is [Plan.Drop] of a launch, which may keep a point that is free then for the stream's next one.
func (p *Point) dropPlan() {
	s, plan := p.stream, &p.plan
	if n := len(plan.gone); p.own && s.ownSpare == nil && n > 0 {
		if g := plan.gone[n-1]; g.point.stream == s {
			plan.gone = plan.gone[:n-1]
			if lost := g.point.lose(g.n); lost && !g.point.detached {
				s.ownSpare = g.point
			}
		}
	}
	plan.Drop()
}

func (s *Stream) queueWaits(in *core.Intent, plan *Plan, marks Marks) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.coveredBy(plan) {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	if marks != nil {
		marks.Mark(s.handle)
	}
	if len(plan.deps) == 0 {
		return nil
	}
	err := plan.queue(s, func(d *dependency) {
		u := &in.Uses[d.use]
		u.Waits++
		u.Elided--
		in.Waited = append(in.Waited, core.Waited{Use: d.use, Stream: d.point.lease, Span: d.of.span, For: d.waitRef(u.Block.Generation), Launch: d.point.launchName(), Access: d.of.kind})
		if marks != nil {
			marks.Mark(s.handle)
		}
	})
	s.counts.Waits.Add(uint64(len(in.Waited)))
	s.counts.Elided.Add(uint64(int(plan.needed) - len(in.Waited)))
	return err
}

// Finish records the end of the launch's work. If that fails the launch must be ended
// by [Point.FinishUnrecorded]. Errors are the driver's.
func (p *Point) Finish(in *core.Intent) error {
	s := p.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.coveredBy(&p.plan) {
		s.detach()
	}
	if err := s.recordAt(p); err != nil {
		return err
	}
	s.flights.note(in, p.seq)
	return nil
}

// FinishUnrecorded ends the work of a launch by the strongest means left, see
// [Stream.Synchronize], and returns cause with what that came to. lost is called if the
// work stays unfenced.
func (p *Point) FinishUnrecorded(cause error, lost func()) error {
	s := p.stream
	s.counts.Fails.Add(1)
	err := s.Synchronize(cause, lost)
	// A place that counts as completed, so that nobody waits for it: after the
	// synchronise that is true, and without it the blocks are poisoned.
	p.seq = s.completed.Load()
	p.clock = p.clock[:0].set(s.slot, p.seq)
	p.endsAs = synthetic
	return err
}

// Withdraw lets a launch whose work was not enqueued end without a trace: the blocks that
// know of it drop it when somebody looks at them. No block may be locked.
func (p *Point) Withdraw() {
	p.dropPlan()
	p.endsAs = withdrawn
}

// End ends a launch that was finished or withdrawn. It reports whether one of its blocks
// may have waited for that, by [History.Watch]: the caller must look, then.
func (p *Point) End() (watched bool) {
	rest := p.rest
	if watched = p.end(p.endsAs); rest > 0 { // or it may be the point of another launch by now
		p.ReleaseMany(rest)
	}
	return watched
}

// Synchronize fences work by the strongest means left: it waits on the host
// until the stream is done, so that everything enqueued later is ordered
// after it. If that fails too, lost is called: the work stays unfenced and
// its blocks must never be used or freed again. It blocks, and returns cause with what
// was done about it.
func (s *Stream) Synchronize(cause error, lost func()) error {
	s.mu.Lock()
	here := newSynthetic(s, core.DefaultStream, s.Here(), s.clock)
	s.mu.Unlock()
	syncErr := s.port.StreamSynchronize(s.handle)
	if syncErr == nil {
		s.NoteCompleted(here.seq)
		here.noteClockCompleted()
		return Detail(cause, "the launch was fenced by synchronising its stream")
	}
	lost()
	return errors.Join(Detail(cause, "the launch could not be fenced: its blocks are poisoned and can be neither used nor reused until the device is reset"), syncErr)
}

// Detail adds to a driver's error what the runtime did about it.
func Detail(err error, text string) error {
	var d *core.DriverError
	if !errors.As(err, &d) {
		return err
	}
	with := *d
	with.Detail = text
	return &with
}
