package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
		l, err := r.streams.table.enterLaunch("PrepareUse", req.Stream)
		if err != nil {
			return core.Ticket{}, err
		}
		if err = l.Open(r.streams.table.ordinal, &req); err == nil {
			l.watch, _ = req.OwnWork.(path.Watch)
			l.followed = l.on.followedAs(req.Stream)
			if l.point, err = l.on.Announce(&l.Intent, l.isOwn()); err != nil {
				l.on.books.Fails.Add(1)
			}
		}
		if err != nil {
			l.leave()
			return core.Ticket{}, err
		}
		ended, err := r.announceOnBlocks(l)
		if err == nil {
			err = l.point.Fence(&l.Intent, r.timed(l, &req))
		}
		if err == nil {
			if r.oracle != nil {
				r.tellLaunch(l, &req)
			}
			l.Blocked = blocked
			return l.Ticket(r.owner), nil
		}
		l.point.Withdraw()
		r.withdraw(ctx, l)
		if ended == nil || !req.Wait {
			return core.Ticket{}, err
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

// declaredLists are for what launches declare to an oracle.
var declaredLists = sync.Pool{New: func() any { return new([]driver.Declared) }}

// tellLaunch tells the oracle what a launch declares, with the bounds that the device knows: a
// guard has red zones around what its callers know of, and looks after these itself.
func (r *tracker) tellLaunch(l *launch, req *core.UseRequest) {
	list := declaredLists.Get().(*[]driver.Declared)
	defer declaredLists.Put(list)
	*list = (*list)[:0]
	for i := range req.Uses {
		u := &req.Uses[i]
		at, known := slices.BinarySearchFunc(l.Uses, u.Block.Generation, func(p core.PreparedUse, g core.Generation) int { return cmp.Compare(p.Block.Generation, g) })
		if !known { // of no bytes
			continue
		}
		b := l.blocks[at] // which an announced launch keeps
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
	launch := core.UseRecord{LaunchID: l.ID, Launch: l.Launch, Stream: l.Stream, Time: l.Began.Time()}
	if req.Span.Sampled {
		launch.Span = req.Span.SpanRef
	} else {
		launch.Caller = req.Span
	}
	l.FirstTags(&launch.Tags)
	r.oracle.LaunchBegins(l.on.Handle(), launch, *list)
}

// declared is an access of the whole block, for an oracle.
func (b *block) declared(access core.Access) driver.Declared {
	return driver.Declared{Ptr: b.core.ID.Ptr, Bytes: max(b.core.Bytes, b.mapped), Access: access}
}

// announceOnBlocks announces the launch on all its blocks and collects what must be
// waited for. If a conflicting launch is in the way it also returns the channel that
// is closed when that one ends. After an error the blocks that know of the
// launch will find it withdrawn.
func (r *tracker) announceOnBlocks(l *launch) (ended <-chan struct{}, err error) {
	t, in, p := r.streams.table, &l.Intent, l.point
	for i := range in.Uses {
		u := &in.Uses[i]
		var b *block
		if u.Block.AllocStream == in.Stream {
			b = l.on.books.blocks.Load(u.Block.Generation)
		}
		if b == nil {
			b = t.lookup(u.Block)
		}
		if b == nil {
			err = goneError("PrepareUse", u.Block)
		} else {
			b.mu.Lock()
			if !b.isLive(u.Block) {
				if err = b.check("PrepareUse", u.Block, in.Stream); l.watch != nil && l.watch.Suspects(u.Block, &b.Record) {
					err = path.ErrDeclined
				}
			} else if l.watch != nil && !l.watch.Announce(in, u, &b.Record) {
				err = path.ErrDeclined
			} else if needed, holder := b.history.Announce(p, u.Access, i); holder != nil {
				ended, err = holder.WaitEnded(), conflictError(in, u, holder)
			} else {
				u.Elided, u.Tag, u.Requested, u.Bytes = needed, b.core.Tag, b.core.Requested, b.core.Bytes
			}
			b.mu.Unlock()
		}
		if err != nil {
			p.NotAnnounced(len(in.Uses) - i)
			return ended, err
		}
		l.blocks = append(l.blocks, b)
	}
	return nil, nil
}

// timed is what notes the launch's times; nil if they are not asked for.
func (r *tracker) timed(l *launch, req *core.UseRequest) fence.Marks {
	if r.times == nil {
		return nil
	}
	if !req.Span.Sampled && !l.isDue(r.times.oneIn) {
		return nil
	}
	if l.timing = r.times.start(l.on, &req.Span); l.timing == nil {
		r.times.tellLost()
		return nil
	}
	return l.timing
}

func conflictError(in *core.Intent, u *core.PreparedUse, holder *fence.Access) error {
	return &core.StreamMisuseError{Op: "PrepareUse", Block: u.Block, Stream: in.Stream,
		Reason: "another stream's launch is announced on the block and not finished, so there is no event to wait for: finish it first, or use Runtime.Launch, which waits",
		Holder: holder.Holder()}
}

// FinishUse places the launch's point. The blocks have it since the launch was announced,
// so none is touched, but for spans and for frees that waited. A launch without uses needs
// no record: nobody knows of its point.
func (r *tracker) FinishUse(ctx context.Context, t core.Ticket) error {
	in, err := t.End(r.owner, "FinishUse")
	if err != nil {
		return err
	}
	l := launchOf(in)
	if l.watch != nil {
		if f := l.watch.Finish(in); f != nil {
			defer f.Ended(ctx) // also where the rest panics
		}
	}
	return r.finish(l)
}

func (r *tracker) finish(l *launch) (err error) {
	if r.oracle != nil {
		r.oracle.LaunchEnds(l.on.Handle(), l.ID)
	}
	if l.Trace != nil {
		l.setSpans()
	}
	timing := l.timing
	if timing != nil {
		l.timing = nil // the backlog has no use for it
		timing.end()
	}
	if len(l.Uses) > 0 {
		backlogged := false
		if l.on.AsksDriver() {
			backlogged, err = r.finishOrBacklog(backlogEnd{launch: l})
		} else if err = l.point.Finish(&l.Intent); err != nil {
			err = r.synchronize(l, err)
		}
		if backlogged {
			if timing != nil {
				r.times.lose(timing)
				r.times.tellLost()
			}
			return err
		}
	}
	l.count()
	var done *reapBatch
	if l.point.End() {
		done = r.launchesEnded(l)
	}
	if timing != nil {
		r.times.launched(timing, l)
	}
	l.leave()
	if timing != nil {
		r.times.tellLost()
	}
	if done != nil {
		r.releaseCompleted(done)
	}
	return err
}

func (l *launch) count() {
	counts := l.on.Counts()
	counts.Launches.Add(1)
	if l.CrossStream {
		counts.CrossStream.Add(1)
	}
	if l.followed != nil {
		l.followed.account.Note(func(j *core.JobAccount) { j.Launches++ })
	}
}

// synchronize fences a launch by synchronising its stream, because its event was not recorded.
func (r *tracker) synchronize(l *launch, cause error) error {
	return l.point.FinishUnrecorded(cause, func() {
		for _, b := range l.blocks {
			b.mu.Lock()
			r.streams.table.poison(b)
			b.mu.Unlock()
		}
	})
}

// setSpans hands the spans of the uses to those who will wait for them.
func (l *launch) setSpans() {
	for i, b := range l.blocks {
		if l.Uses[i].Span.IsZero() {
			continue
		}
		b.mu.Lock()
		b.history.SetSpan(l.point, l.Uses[i].Span)
		b.mu.Unlock()
	}
}

// AbortUse closes the intent and records nothing.
func (r *tracker) AbortUse(ctx context.Context, t core.Ticket) error {
	in, err := t.End(r.owner, "AbortUse")
	if err != nil {
		return err
	}
	l := launchOf(in)
	if r.oracle != nil {
		r.oracle.LaunchEnds(l.on.Handle(), l.ID)
	}
	l.on.Counts().Aborts.Add(1)
	l.point.Withdraw()
	r.withdraw(ctx, l)
	return nil
}

// withdraw ends a launch of which nothing was enqueued, and tells the layer that watches it.
func (r *tracker) withdraw(ctx context.Context, l *launch) {
	var done *reapBatch
	if l.point.End() {
		done = r.launchesEnded(l)
	}
	defer func() {
		l.leave()
		r.releaseCompleted(done)
	}()
	if l.timing != nil {
		r.times.recycle(l.timing)
		l.timing = nil
	}
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

// launch is an intent and what the tracker has of it. A stream has one for itself, and with it what
// the layers above keep with its intent. It fills whole cache lines.
type launch struct {
	core.Intent
	point *fence.Point
	on    *stream
	watch path.Watch
	// blocks are those of its uses that it is announced on.
	blocks []*block
	// timing is nil if the launch is not timed.
	timing *timing
	// followed is the lease, if an account follows it, or nil.
	followed *Lease
	// time chooses those that are timed and in no sampled trace, if the launch is the stream's own.
	time countdown
}

// launches are those of streams whose own is in use.
var launches = sync.Pool{New: func() any {
	l := new(launch)
	l.Handle = l
	return l
}}

// enterLaunch is enterUncaptured for a launch, which it returns.
func (t *streamTable) enterLaunch(op string, id core.StreamID) (*launch, error) {
	seen := t.leases.Load()
	s := seen.find(id)
	if s == nil {
		return nil, t.notLeased(op, id)
	}
	l := s.enterLaunch()
	err := t.stillLeased(op, id, seen)
	if err == nil {
		err = s.RefuseCaptured(op, id)
	}
	if err != nil {
		l.leave()
		return nil, err
	}
	return l, nil
}

// enterLaunch enters the stream for a launch, which it returns closed.
func (s *stream) enterLaunch() *launch {
	if s.EnterOwn() {
		return &s.launch
	}
	l := launches.Get().(*launch)
	l.on = s
	return l
}

func (l *launch) isOwn() bool { return l == &l.on.launch }

// isDue reports whether a launch that is in no sampled trace is to be timed. One that is not the stream's own has been
// others', whose count says nothing here.
func (l *launch) isDue(oneIn uint32) bool {
	if l.isOwn() {
		return l.time.due(oneIn)
	}
	return oneIn > 0 && rand.Uint32N(oneIn) == 0
}

// leave closes the intent, for the stream's next launch, and leaves the stream.
func (l *launch) leave() {
	l.Close()
	l.point, l.watch, l.followed, l.blocks = nil, nil, nil, l.blocks[:0]
	s, own := l.on, l.isOwn()
	if !own {
		l.on = nil
		launches.Put(l)
	}
	s.LeaveOwn(own)
}

// launchOf is the launch of an intent that a ticket has ended: of a resource that gave it, so its handle is of this package.
func launchOf(in *core.Intent) *launch { return in.Handle.(*launch) }
