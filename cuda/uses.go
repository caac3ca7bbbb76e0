package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/fence"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// PrepareUse announces the launch on its blocks, which are locked one at a time,
// and then queues the waits. If one block refuses, the launch is withdrawn, and
// the blocks that know of it drop it when somebody looks at them.
func (r *tracker) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	for blocked := false; ; blocked = true {
		ticket, ended, err := r.prepare(ctx, &req)
		if ended == nil || !req.Wait {
			if blocked && err == nil {
				ticket.Intent().Blocked = true
			}
			return ticket, err
		}
		if r.backlog.n.Load() > 0 { // it may be what is in the way, and no reaper be running
			_ = r.retryBacklog() // the next reap reports a lasting error
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return core.Ticket{}, fmt.Errorf("%w; gave up waiting for it: %w", err, ctx.Err())
		}
	}
}

// PassesUses is for the layer above, which calls the tracker for them: see package path.
func (r *tracker) PassesUses() (core.Resource, path.Uses) { return r.owner, r }

// prepare is one attempt. If a conflicting launch is in the way it also
// returns the channel that is closed when that one ends.
func (r *tracker) prepare(ctx context.Context, req *core.UseRequest) (core.Ticket, <-chan struct{}, error) {
	s, err := r.streams.table.enterUncaptured("PrepareUse", req.Stream)
	if err != nil {
		return core.Ticket{}, nil, err
	}
	l, err := s.openLaunch(r.owner, req)
	if err != nil {
		s.Leave()
		return core.Ticket{}, nil, err
	}
	l.watch, _ = req.OwnWork.(*path.Watch)
	in := &l.Intent
	if r.lookUp(l) {
		s.Leave()
		l.keep()
		return core.Ticket{}, nil, path.ErrDeclined
	}
	p, err := s.Announce(in)
	if err != nil {
		s.books.Fails.Add(1)
		s.Leave()
		l.keep()
		return core.Ticket{}, nil, err
	}
	l.point = p
	ended, err := r.announceOnBlocks(l)
	if err == nil {
		err = p.Fence(in)
	}
	if err != nil {
		p.Withdraw()
		r.withdraw(ctx, l)
		return core.Ticket{}, ended, err
	}
	if r.oracle != nil {
		r.tellLaunch(in, req)
	}
	return in.Ticket(r.owner), nil, nil
}

// declaredLists are for what launches declare to an oracle.
var declaredLists = sync.Pool{New: func() any { return new([]driver.Declared) }}

// tellLaunch tells the oracle what a launch declares, with the bounds that the device knows: a
// guard has red zones around what its callers know of, and looks after these itself.
func (r *tracker) tellLaunch(in *core.Intent, req *core.UseRequest) {
	list := declaredLists.Get().(*[]driver.Declared)
	defer declaredLists.Put(list)
	*list = (*list)[:0]
	for i := range req.Uses {
		u := &req.Uses[i]
		at, known := slices.BinarySearchFunc(in.Uses, u.Block.Generation, func(p core.PreparedUse, g core.Generation) int { return cmp.Compare(p.Block.Generation, g) })
		if !known { // of no bytes
			continue
		}
		b := blockOf(&in.Uses[at]) // which an announced launch keeps
		d := b.declared(u.Access)
		low, high := d.Ptr, d.Ptr+d.Bytes
		if u.Bytes > 0 && u.Offset > 0 {
			low = max(low, u.Block.Ptr+u.Offset)
		}
		if end := u.Offset + u.Bytes; u.Bytes > 0 && end < b.core.Requested {
			high = min(high, u.Block.Ptr+end)
		}
		if low < high {
			d.Ptr, d.Bytes = low, high-low
			*list = append(*list, d)
		}
	}
	r.oracle.LaunchBegins(pointOf(in).Stream().Handle(), in.ID, in.Launch, *list)
}

// declared is an access of the whole block, for an oracle.
func (b *block) declared(access core.Access) driver.Declared {
	return driver.Declared{Ptr: b.core.ID.Ptr, Bytes: max(b.core.Bytes, b.mapped), Access: access}
}

// tellEnd tells the oracle that the launch enqueues no more.
func (r *tracker) tellEnd(in *core.Intent) {
	if r.oracle != nil {
		r.oracle.LaunchEnds(pointOf(in).Stream().Handle(), in.ID)
	}
}

// lookUp looks each block up, without a lock, and reports whether the layer that watches the launch suspects one of
// several: a single one is judged where the launch is announced on it.
func (r *tracker) lookUp(l *launch) (suspected bool) {
	in := &l.Intent
	for i := range in.Uses {
		l.blocks = append(l.blocks, r.streams.table.loadOn(l.on, in.Uses[i].Block, in.Stream))
		if len(in.Uses) > 1 && l.suspects(i) {
			return true
		}
	}
	return false
}

// suspects asks the layer that watches the launch about one of its blocks.
func (l *launch) suspects(use int) bool {
	b := l.blocks[use]
	return b != nil && l.watch != nil && l.watch.Suspects(&l.Uses[use], &b.Record)
}

// announceOnBlocks announces the launch on all its blocks and collects what must be
// waited for. If a conflicting launch is in the way it also returns the channel that
// is closed when that one ends. After an error the blocks that know of the
// launch will find it withdrawn.
func (r *tracker) announceOnBlocks(l *launch) (<-chan struct{}, error) {
	in, p := &l.Intent, l.point
	for i := range in.Uses {
		u := &in.Uses[i]
		b, err := r.streams.table.lockFound(l.blocks[i], "PrepareUse", u.Block, in.Stream)
		if err != nil {
			p.ReleaseMany(int32(len(in.Uses) - i))
			if l.suspects(i) {
				err = path.ErrDeclined
			}
			return nil, err
		}
		if l.watch != nil && !l.watch.Announce(in, u, &b.Record) {
			b.mu.Unlock()
			p.ReleaseMany(int32(len(in.Uses) - i))
			return nil, path.ErrDeclined
		}
		needed, holder := b.history.Announce(p, u.Access, i)
		if holder != nil {
			ended := holder.WaitEnded()
			err := conflictError(in, u, holder)
			b.mu.Unlock()
			p.ReleaseMany(int32(len(in.Uses) - i))
			return ended, err
		}
		u.Elided, u.Tag, u.Requested, u.Bytes, u.Handle = needed, b.core.Tag, b.core.Requested, b.core.Bytes, b
		b.mu.Unlock()
	}
	return nil, nil
}

func conflictError(in *core.Intent, u *core.PreparedUse, holder *fence.Access) error {
	return &core.StreamMisuseError{Op: "PrepareUse", Block: u.Block, Stream: in.Stream,
		Reason: "another stream's launch is announced on the block and not finished, so there is no event to wait for: finish it first, or use Runtime.Launch, which waits",
		Holder: holder.Holder()}
}

// FinishUse places the launch's point. The blocks have it since the launch was announced,
// so none is touched, but for spans and for frees that waited. A launch without uses needs
// no record: nobody knows of its point.
func (r *tracker) FinishUse(_ context.Context, t core.Ticket) error {
	in, err := t.End(r.owner, "FinishUse")
	if err != nil {
		return err
	}
	r.tellEnd(in)
	p := pointOf(in)
	if in.Trace != nil {
		setSpans(in, p)
	}
	if len(in.Uses) > 0 {
		backlogged := false
		if p.Stream().AsksDriver() {
			backlogged, err = r.finishOrBacklog(backlogEnd{in: in})
		} else {
			err = r.finish(in, p, nil)
		}
		if backlogged {
			return err
		}
	}
	countLaunch(in)
	r.endLaunch(in)
	return err
}

func countLaunch(in *core.Intent) {
	counts := pointOf(in).Stream().Counts()
	counts.Launches.Add(1)
	if in.CrossStream {
		counts.CrossStream.Add(1)
	}
}

// finish fences a launch, by synchronising its stream if the driver refuses to record
// its event, or is not to be asked for cause.
func (r *tracker) finish(in *core.Intent, p *fence.Point, cause error) error {
	if cause == nil {
		cause = p.Finish(in)
	}
	if cause == nil {
		return nil
	}
	return p.FinishUnrecorded(cause, func() {
		for i := range in.Uses {
			b := blockOf(&in.Uses[i])
			b.mu.Lock()
			r.streams.table.poison(b)
			b.mu.Unlock()
		}
	})
}

// setSpans hands the spans of the uses to those who will wait for them.
func setSpans(in *core.Intent, p *fence.Point) {
	for i := range in.Uses {
		if in.Uses[i].Span.IsZero() {
			continue
		}
		b := blockOf(&in.Uses[i])
		b.mu.Lock()
		b.history.SetSpan(p, in.Uses[i].Span)
		b.mu.Unlock()
	}
}

// AbortUse closes the intent and records nothing.
func (r *tracker) AbortUse(ctx context.Context, t core.Ticket) error {
	in, err := t.End(r.owner, "AbortUse")
	if err != nil {
		return err
	}
	r.tellEnd(in)
	p := pointOf(in)
	p.Stream().Counts().Aborts.Add(1)
	p.Withdraw()
	r.withdraw(ctx, launchOf(in))
	return nil
}

// withdraw ends a launch of which nothing was enqueued, and tells the layer that watches it.
func (r *tracker) withdraw(ctx context.Context, l *launch) {
	done := r.endPoint(&l.Intent)
	defer func() {
		l.keep()
		r.releaseCompleted(done)
	}()
	if l.watch != nil {
		l.watch.Withdraw(ctx, &l.Intent)
	}
}

// plans are those of frees and recorded uses: a launch has its own.
var plans = sync.Pool{New: func() any { return new(fence.Plan) }}

// recyclePlan drops a plan that was taken from the pool.
func recyclePlan(plan *fence.Plan) {
	plan.Drop()
	plans.Put(plan)
}

// RecordUse records a point behind work that was enqueued without prepared
// waits, and adds it to the block's accesses. If the stream is capturing it
// returns an error, and the use stays announced on the block until the capture
// has ended and a reap records it.
func (r *tracker) RecordUse(_ context.Context, id core.BlockID, stream core.StreamID) error {
	s, err := r.streams.table.enter("RecordUse", stream)
	if err != nil {
		return err
	}
	defer s.Leave() // neither is the stream given up before the use is fenced nor begins a capture
	b, err := r.streams.table.find("RecordUse", id, stream)
	if err != nil {
		return err
	}
	whole := b.declared(core.ReadWrite)
	b.mu.Unlock() // not held over the driver's calls
	if r.oracle != nil {
		r.oracle.UseRecorded(s.Handle(), whole)
	}
	if backlogged, err := r.backlogUse(s, id, stream); backlogged {
		return err
	}
	p, fenced, recordErr := recordNow(s, stream)
	plan := plans.Get().(*fence.Plan)
	defer recyclePlan(plan)
	if p != nil {
		defer p.Release()
	}
	if b, err = r.streams.table.find("RecordUse", id, stream); err != nil {
		return errors.Join(recordErr, err)
	}
	defer b.mu.Unlock()
	if p != nil {
		b.history.AddRecorded(p, plan)
	} else if !fenced {
		r.streams.table.poison(b)
	}
	return recordErr
}

// recordNow records a point behind what is enqueued on s. If the driver
// refuses, the stream is synchronised; fenced says whether that went well.
func recordNow(s *stream, lease core.StreamID) (p *fence.Point, fenced bool, err error) {
	s.Lock()
	p, err = s.Record(lease)
	s.Unlock()
	if err == nil {
		return p, true, nil
	}
	s.books.Fails.Add(1)
	fenced = true
	err = s.Synchronize(err, func() { fenced = false })
	return nil, fenced, err
}

// recordHere records a point behind what is enqueued on s now.
func (s *stream) recordHere(lease core.StreamID) (*fence.Point, error) {
	s.Lock()
	defer s.Unlock()
	if s.IsGivenUp() {
		return nil, givenUpError("Synchronize", lease)
	}
	if err := s.RefuseCaptured("Synchronize", lease); err != nil {
		return nil, err
	}
	return s.Record(lease)
}

// givenUpError is the refusal of work on an adopted stream whose lease was given
// back while the work was on its way.
func givenUpError(op string, id core.StreamID) error {
	return &core.StreamMisuseError{Op: op, Stream: id, Reason: "the adopted stream was given up meanwhile: release its lease after its work is enqueued"}
}

// launch is an intent and what the tracker has of it. A stream keeps one for its next launch, and with it what
// the layers above keep with its intent.
type launch struct {
	core.Intent
	point *fence.Point
	on    *stream
	watch *path.Watch
	// blocks are what was found of its uses without a lock.
	blocks []*block
	_      [16]byte // launches share no cache line
}

// launches are those that no stream keeps.
var launches = sync.Pool{New: func() any {
	l := new(launch)
	l.Handle = l
	return l
}}

// openLaunch opens an intent for a launch on the stream. Errors are those of [core.OpenIntent].
func (s *stream) openLaunch(owner core.Resource, req *core.UseRequest) (*launch, error) {
	l := s.spareLaunch.Swap(nil)
	if l == nil {
		l = launches.Get().(*launch)
		l.on = s
	}
	if err := l.Open(owner, req); err != nil {
		l.keep()
		return nil, err
	}
	return l, nil
}

// keep closes the intent, for the stream's next launch.
func (l *launch) keep() {
	l.Close()
	l.watch, l.blocks = nil, l.blocks[:0]
	if l.point = nil; !l.on.spareLaunch.CompareAndSwap(nil, l) {
		l.on = nil
		launches.Put(l)
	}
}

// A ticket ends only at the resource that gave it, so the handles of its intent are of this package.

func launchOf(in *core.Intent) *launch { return in.Handle.(*launch) }

// pointOf is the point of a launch.
func pointOf(in *core.Intent) *fence.Point { return launchOf(in).point }

// blockOf is the record of a block that a launch uses.
func blockOf(u *core.PreparedUse) *block { return u.Handle.(*block) }
