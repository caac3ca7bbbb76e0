package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

var fences = sync.Pool{New: func() any { return new(fence) }}

// PrepareUse opens the intent on every block, then queues the waits. Blocks
// are locked one at a time; a refusal takes back the intents opened so far.
func (r *AsyncResource) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	for {
		ticket, closed, err := r.prepare(req)
		if closed == nil || !req.Wait {
			return ticket, err
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return core.Ticket{}, fmt.Errorf("%w; gave up waiting for it: %w", err, ctx.Err())
		}
	}
}

// prepare is one attempt. If a conflicting intent is in the way it also
// returns the channel that is closed when one on that block ends.
func (r *AsyncResource) prepare(req core.UseRequest) (core.Ticket, <-chan struct{}, error) {
	s, err := r.enter(req.Stream)
	if err != nil {
		return core.Ticket{}, nil, err
	}
	in, err := core.OpenIntent(r, req)
	if err != nil {
		s.open.Add(-1)
		return core.Ticket{}, nil, err
	}
	f := fences.Get().(*fence)
	closed, err := r.open(s, in, f)
	if err == nil {
		err = r.fenceLaunch(s, in, f)
	}
	f.drop()
	fences.Put(f)
	if err != nil {
		s.open.Add(-1)
		in.Recycle()
		return core.Ticket{}, closed, err
	}
	in.Handle = s
	return in.Ticket(r), nil, nil
}

// enter resolves a lease for a launch and counts the launch as open on its
// stream. The lease is looked up again after counting: a Release that comes
// between is seen here, and one that comes later sees the launch.
func (r *AsyncResource) enter(id core.StreamID) (*stream, error) {
	table := r.streams.table
	seen := table.leases.Load()
	s, err := table.resolve("PrepareUse", id)
	if err != nil {
		return nil, err
	}
	s.open.Add(1)
	if table.leases.Load() == seen {
		return s, nil // the map is replaced at every change
	}
	if _, err := table.resolve("PrepareUse", id); err != nil {
		s.open.Add(-1)
		return nil, err
	}
	return s, nil
}

// open opens the intent on all blocks and collects what must be waited for.
// If a conflicting intent is in the way it also returns the channel that is
// closed when one on that block ends.
func (r *AsyncResource) open(s *stream, in *core.Intent, f *fence) (<-chan struct{}, error) {
	for i := range in.Uses {
		u := &in.Uses[i]
		b, err := r.find("PrepareUse", u.Block, in.Stream)
		if err != nil {
			r.closeIntents(in, i)
			return nil, err
		}
		if holder := b.conflict(s, u.Access); holder != nil {
			closed := b.waitClosed()
			err := conflictError(in, u, holder)
			b.mu.Unlock()
			r.closeIntents(in, i)
			return closed, err
		}
		b.intents = append(b.intents, intent{id: in.ID, stream: s, lease: in.Stream, access: u.Access, launch: in.Launch})
		b.depend(f, s, u.Access, i)
		if b.writer != nil && b.writer != s {
			in.CrossStream = true
		}
		u.Tag, u.Requested, u.Bytes, u.Handle = b.core.Tag, b.core.Requested, b.core.Bytes, b
		b.mu.Unlock()
	}
	return nil, nil
}

func conflictError(in *core.Intent, u *core.PreparedUse, holder *intent) error {
	return &core.StreamMisuseError{Op: "PrepareUse", Block: u.Block, Stream: in.Stream,
		Reason: "another stream's launch is announced on the block and not finished, so there is no event to wait for: finish it first, or use Runtime.Launch, which waits",
		Holder: &core.IntentHolder{Launch: holder.launch, Stream: holder.lease, Access: holder.access}}
}

// fenceLaunch queues the waits and notes them in the intent.
func (r *AsyncResource) fenceLaunch(s *stream, in *core.Intent, f *fence) error {
	if len(f.deps) == 0 {
		return nil
	}
	for i := range f.deps {
		in.Uses[f.deps[i].use].Elided++
	}
	s.mu.Lock()
	err := f.queue(s, func(d dependency) {
		u := &in.Uses[d.use]
		u.Waits++
		u.Elided--
		in.Waited = append(in.Waited, core.Waited{Use: d.use, Stream: d.event.lease, Span: d.span})
	})
	s.mu.Unlock()
	s.books.waits.Add(uint64(len(in.Waited)))
	s.books.elided.Add(uint64(len(f.deps) - len(in.Waited)))
	if err != nil {
		s.books.fails.Add(1)
		r.closeIntents(in, len(in.Uses))
	}
	return err
}

// closeIntents takes back the intents on the first n uses.
func (r *AsyncResource) closeIntents(in *core.Intent, n int) {
	for i := range in.Uses[:n] {
		b := in.Uses[i].Handle.(*block)
		b.mu.Lock()
		r.endIntent(in, b)
	}
}

// endIntent ends the intent of one launch on b, unlocks b, and frees it if
// that is due. b.mu must be held, and what the launch did noted, so that no
// other launch sees the block without the one or the other.
func (r *AsyncResource) endIntent(in *core.Intent, b *block) {
	b.closeIntent(in.ID)
	due := b.core.State == core.Retired && len(b.intents) == 0 && !b.poisoned
	b.mu.Unlock()
	if due {
		r.freeDeferred(b)
	}
}

// AbortUse closes the intent and records nothing.
func (r *AsyncResource) AbortUse(_ context.Context, t core.Ticket) error {
	in, err := t.End(r, "AbortUse")
	if err != nil {
		return err
	}
	s := in.Handle.(*stream)
	r.closeIntents(in, len(in.Uses))
	s.books.aborts.Add(1)
	s.open.Add(-1)
	in.Recycle()
	return nil
}

// RecordUse records an event behind work that was enqueued without prepared
// waits, and adds it to the block's accesses.
func (r *AsyncResource) RecordUse(_ context.Context, id core.BlockID, stream core.StreamID) error {
	s, err := r.streams.table.resolve("RecordUse", stream)
	if err != nil {
		return err
	}
	b, err := r.find("RecordUse", id, stream)
	if err != nil {
		return err
	}
	b.mu.Unlock() // not held over the driver's calls
	e, fenced, recordErr := r.recordNow(s, stream)
	if e != nil {
		defer e.release()
	}
	if b, err = r.find("RecordUse", id, stream); err != nil {
		return errors.Join(recordErr, err)
	}
	defer b.mu.Unlock()
	if e != nil {
		b.recorded(access{event: e, kind: core.ReadWrite})
	} else if !fenced {
		r.poison(b)
	}
	return recordErr
}

// recordNow records an event behind what is enqueued on s. If the driver
// refuses, the stream is synchronised; fenced says whether that went well.
func (r *AsyncResource) recordNow(s *stream, lease core.StreamID) (e *event, fenced bool, err error) {
	s.mu.Lock()
	if s.last.Load() != nil {
		s.mu.Unlock()
		return nil, true, givenUp("RecordUse", lease)
	}
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

// givenUp is the refusal of work on an adopted stream whose lease was given
// back while the work was on its way.
func givenUp(op string, id core.StreamID) error {
	return &core.StreamMisuseError{Op: op, Stream: id, Reason: "the adopted stream was given up meanwhile: release its lease after its work is enqueued"}
}
