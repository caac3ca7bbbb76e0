package cuda

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// PrepareUse announces the launch on its blocks, which are locked one at a time,
// and then queues the waits. If one block refuses, the launch is withdrawn, and
// the blocks that know of it drop it when somebody looks at them.
func (r *AsyncResource) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	for {
		ticket, closed, err := r.prepare(req)
		if closed == nil || !req.Wait {
			return ticket, err
		}
		if r.backlog.n.Load() > 0 { // it may be what is in the way, and no reaper be running
			_ = r.retryUnfreed() // the next reap reports a lasting error
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return core.Ticket{}, fmt.Errorf("%w; gave up waiting for it: %w", err, ctx.Err())
		}
	}
}

// prepare is one attempt. If a conflicting launch is in the way it also
// returns the channel that is closed when that one ends.
func (r *AsyncResource) prepare(req core.UseRequest) (core.Ticket, <-chan struct{}, error) {
	s, err := r.streams.table.enterUncaptured("PrepareUse", req.Stream)
	if err != nil {
		return core.Ticket{}, nil, err
	}
	in, err := core.OpenIntent(r, req)
	if err != nil {
		s.leave()
		return core.Ticket{}, nil, err
	}
	e, err := s.announce(in)
	if err != nil {
		s.books.fails.Add(1)
		s.leave()
		in.Recycle()
		return core.Ticket{}, nil, err
	}
	ended, err := r.open(s, in, e)
	if err == nil {
		err = r.fenceLaunch(s, in, e)
	}
	e.fence.drop()
	if err != nil {
		r.endLaunch(in, withdrawn)
		return core.Ticket{}, ended, err
	}
	return in.Ticket(r), nil, nil
}

// announce makes the event of a launch, with a reference for each block.
func (s *stream) announce(in *core.Intent) (*event, error) {
	e, err := s.events.get(s, int32(1+len(in.Uses)))
	if err != nil {
		return nil, err
	}
	e.lease, e.launch, e.name = in.Stream, in.ID, in.Launch
	e.fence.sharersWritten, e.fence.sharedSeq = 0, 0
	e.state.Store(announced)
	in.Handle = e
	return e, nil
}

// open announces the launch on all blocks and collects what must be waited
// for. If a conflicting launch is in the way it also returns the channel that
// is closed when that one ends. After an error the blocks that know of the
// launch will find it withdrawn.
func (r *AsyncResource) open(s *stream, in *core.Intent, e *event) (<-chan struct{}, error) {
	for i := range in.Uses {
		u := &in.Uses[i]
		b, err := r.find("PrepareUse", u.Block, in.Stream)
		if err != nil {
			e.releaseMany(int32(len(in.Uses) - i))
			return nil, err
		}
		if holder := b.announce(e, u.Access, i); holder != nil {
			ended := holder.event.waitEnded()
			err := conflictError(in, u, holder)
			b.mu.Unlock()
			e.releaseMany(int32(len(in.Uses) - i))
			return ended, err
		}
		if b.writtenByOther(s) {
			in.CrossStream = true
		}
		u.Tag, u.Requested, u.Bytes, u.Handle = b.core.Tag, b.core.Requested, b.core.Bytes, b
		b.mu.Unlock()
	}
	return nil, nil
}

func conflictError(in *core.Intent, u *core.PreparedUse, holder *access) error {
	return &core.StreamMisuseError{Op: "PrepareUse", Block: u.Block, Stream: in.Stream,
		Reason: "another stream's launch is announced on the block and not finished, so there is no event to wait for: finish it first, or use Runtime.Launch, which waits",
		Holder: &core.IntentHolder{Launch: holder.event.name, Stream: holder.event.lease, Access: holder.kind}}
}

// fenceLaunch queues the waits and notes them in the intent.
func (r *AsyncResource) fenceLaunch(s *stream, in *core.Intent, e *event) error {
	f := &e.fence
	for i := range f.deps {
		in.Uses[f.deps[i].use].Elided++
	}
	err := f.flushOthers()
	if err == nil {
		err = r.queueWaits(s, in, f)
	}
	if err != nil {
		s.books.fails.Add(1)
	}
	return err
}

func (r *AsyncResource) queueWaits(s *stream, in *core.Intent, f *fence) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.coveredBy(f) {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if len(f.deps) == 0 {
		return nil
	}
	err := f.queue(s, func(d dependency) {
		u := &in.Uses[d.use]
		u.Waits++
		u.Elided--
		in.Waited = append(in.Waited, core.Waited{Use: d.use, Stream: d.event.lease, Span: d.span, For: d.waitRef(u.Block.Generation)})
	})
	s.books.waits.Add(uint64(len(in.Waited)))
	s.books.elided.Add(uint64(len(f.deps) - len(in.Waited)))
	return err
}

// AbortUse closes the intent and records nothing.
func (r *AsyncResource) AbortUse(_ context.Context, t core.Ticket) error {
	in, err := t.End(r, "AbortUse")
	if err != nil {
		return err
	}
	pointOf(in).stream.books.aborts.Add(1)
	r.endLaunch(in, withdrawn)
	return nil
}

// RecordUse records an event behind work that was enqueued without prepared
// waits, and adds it to the block's accesses. If the stream is capturing it
// returns an error, and the use stays announced on the block until the capture
// has ended and a reap records it.
func (r *AsyncResource) RecordUse(_ context.Context, id core.BlockID, stream core.StreamID) error {
	s, err := r.streams.table.enter("RecordUse", stream)
	if err != nil {
		return err
	}
	defer s.leave() // neither is the stream given up before the use is fenced nor begins a capture
	b, err := r.find("RecordUse", id, stream)
	if err != nil {
		return err
	}
	b.mu.Unlock() // not held over the driver's calls
	if backlogged, err := r.backlogUse(s, id, stream); backlogged {
		return err
	}
	e, fenced, recordErr := r.recordNow(s, stream)
	f := fences.Get().(*fence)
	defer f.recycle()
	if e != nil {
		defer e.release()
	}
	if b, err = r.find("RecordUse", id, stream); err != nil {
		return errors.Join(recordErr, err)
	}
	defer b.mu.Unlock()
	if e != nil {
		b.addRecordedUse(access{event: e, kind: core.ReadWrite}, f)
	} else if !fenced {
		r.streams.table.poison(b)
	}
	return recordErr
}

// recordHere records an event behind what is enqueued on s now.
func (s *stream) recordHere(lease core.StreamID) (*event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isGivenUp() {
		return nil, givenUpError("Synchronize", lease)
	}
	if err := s.refuseCaptured("Synchronize", lease); err != nil {
		return nil, err
	}
	return s.record(lease)
}

// recordNow records an event behind what is enqueued on s. If the driver
// refuses, the stream is synchronised; fenced says whether that went well.
func (r *AsyncResource) recordNow(s *stream, lease core.StreamID) (e *event, fenced bool, err error) {
	s.mu.Lock()
	e, err = s.record(lease)
	s.mu.Unlock()
	if err == nil {
		return e, true, nil
	}
	s.books.fails.Add(1)
	fenced = true
	err = r.fenceBySync(s, err, func() { fenced = false })
	return nil, fenced, err
}

// givenUpError is the refusal of work on an adopted stream whose lease was given
// back while the work was on its way.
func givenUpError(op string, id core.StreamID) error {
	return &core.StreamMisuseError{Op: op, Stream: id, Reason: "the adopted stream was given up meanwhile: release its lease after its work is enqueued"}
}
