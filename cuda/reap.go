package cuda

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/internal/vmm"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// A stream's pending frees are looked at after reapOperations allocations and
// frees there, so that one query and one record serve many of them, and after
// reapBytes of frees, so that large blocks are not kept from others for long.
// An allocation or a free that looks releases at most releaseAtOnce blocks, of its
// own stream, and leaves the rest to the next; an isolated allocation also unmaps at
// most unmapAtOnce.
const (
	reapOperations = 32
	reapBytes      = 32 << 20
	releaseAtOnce  = 64
	unmapAtOnce    = 4
)

// unlimited is for who has the time to release all that is completed.
const unlimited = math.MaxInt

// reapBatch is frees of a stream that are completed, on their way out of the books. It
// may have others behind it: a caller that holds a lock hands what it took to one that
// holds none.
type reapBatch struct {
	// stream is whose queue has the frees, nil for one that no queue has had.
	stream  *stream
	entries []pendingFree
	next    *reapBatch
}

var reapBatches = sync.Pool{New: func() any { return new(reapBatch) }}

// newBatch returns an empty batch of s, which [tracker.release] recycles.
func (r *tracker) newBatch(s *stream) *reapBatch {
	batch := reapBatches.Get().(*reapBatch)
	batch.stream = s
	return batch
}

// batchOf returns a batch of one retired block that waits for nothing.
func (r *tracker) batchOf(b *block) *reapBatch {
	batch := r.newBatch(nil)
	batch.entries = append(batch.entries, pendingFree{block: b})
	return batch
}

// followedBy puts others behind a batch, and returns the first; either may be nil.
func (batch *reapBatch) followedBy(others *reapBatch) *reapBatch {
	if batch == nil {
		return others
	}
	last := batch
	for last.next != nil {
		last = last.next
	}
	last.next = others
	return batch
}

// takeSome is the share of every allocation and free of the stream in the work of
// releasing: when a look at the pending frees is due it takes some that are
// completed, for [tracker.releaseCompleted]; the stream's lock must be held. Failures are
// left to the next ReapPending.
func (r *tracker) takeSome(s *stream) *reapBatch {
	if !s.frees.lookIsDue() {
		return nil
	}
	batch, _ := r.takeCompleted(s, releaseAtOnce)
	return batch
}

// takeCompleted takes at most so many completed frees from those that are pending;
// the stream's lock must be held. Frees are not marked one by one: one event is recorded behind all
// of them, and a later look (or the same, if the device is quick) finds it completed.
// It makes no call that blocks.
func (r *tracker) takeCompleted(s *stream, most int) (*reapBatch, error) {
	q := &s.frees
	q.operations, q.freedBytes = 0, 0
	batch := r.newBatch(s)
	for len(batch.entries) < most && q.pendingFrees() > 0 {
		if q.completed == 0 {
			if done, err := r.lookAtMark(s); err != nil || !done {
				return batch, err
			}
		}
		batch.entries = q.take(batch.entries, most-len(batch.entries))
	}
	return batch, nil
}

// lookAtMark reports whether the device has come to the mark behind pending frees,
// which it makes if there is none; the stream's lock must be held. Of a stream that was
// given up the final point is behind all frees. While the stream captures that cannot be known.
func (r *tracker) lookAtMark(s *stream) (bool, error) {
	if s.frees.mark == nil {
		mark, err := s.FinalOrRecord(core.DefaultStream)
		if err != nil {
			return false, unlessCapturing(err)
		}
		s.frees.markAll(mark)
	}
	if done, err := s.QueryMark(s.frees.mark); err != nil || !done {
		return false, err
	}
	s.frees.markCompleted()
	return true, nil
}

// releaseCompleted releases a batch and those behind it, except for isolated blocks: an
// unmap takes long, and it may be the end of a launch that found the mark completed. They
// wait for the next reap, or the next isolated allocation. No lock may be held.
func (r *tracker) releaseCompleted(batch *reapBatch) {
	if batch == nil {
		return
	}
	defer r.releaseCompleted(batch.next) // also where a listener panics
	if batch.stream != nil {
		batch.entries = batch.stream.frees.setAside(batch.entries)
	}
	r.release(batch)
}

// release is the one place where blocks are released: it takes them out of the books,
// and tells the listeners. No lock may be held.
func (r *tracker) release(batch *reapBatch) {
	if len(batch.entries) > 0 {
		batch.leaveBooks(monotime.Now())
	}
	if batch.stream != nil {
		for i := range batch.entries {
			batch.stream.frees.bytes.noteReleased(&batch.entries[i])
		}
	}
	defer func() {
		if batch.stream != nil {
			batch.noteReleased(&batch.stream.frees)
		}
		clear(batch.entries)
		*batch = reapBatch{entries: batch.entries[:0]}
		reapBatches.Put(batch)
	}()
	usercode.All(batch.entries, func(p pendingFree) { r.releaseBlock(p.block) })
}

// leaveBooks takes the books' lock once for the blocks that follow each other
// there: most often all of them. They all became reusable now.
func (batch *reapBatch) leaveBooks(now monotime.Instant) {
	for from := 0; from < len(batch.entries); {
		of := batch.entries[from].block.stream.books
		to := from + 1
		for to < len(batch.entries) && batch.entries[to].block.stream.books == of {
			to++
		}
		of.releaseAll(batch.entries[from:to], now)
		from = to
	}
}

// noteReleased tells the queue once of the frees that follow each other there: most
// often all of them.
func (batch *reapBatch) noteReleased(q *freeQueue) {
	for from := 0; from < len(batch.entries); {
		to := from + 1
		for to < len(batch.entries) && batch.entries[to].number == batch.entries[to-1].number+1 {
			to++
		}
		q.noteReleased(freeRange{batch.entries[from].number, batch.entries[to-1].number + 1})
		from = to
	}
}

// releaseBlock tells the layers, which close their parts of the record, and recycles it. It keeps what
// it says, so that a straggler who found it meanwhile reads that it is retired, until it is filled
// anew under its lock.
func (r *tracker) releaseBlock(b *block) {
	gone := b.core
	gone.State = core.Freed
	r.listeners.Released(&b.Record, gone)
	r.streams.table.records.spare.Put(b)
}

// unmapCompleted unmaps at most so many of the isolated blocks of s that the device is
// done with, and releases them. One that cannot be unmapped waits for the next call.
// No lock may be held.
func (r *tracker) unmapCompleted(s *stream, most int) error {
	return r.unmap(s, s.frees.takeUnmaps(most))
}

func (r *tracker) unmap(s *stream, frees []pendingFree) (first error) {
	usercode.All(frees, func(p pendingFree) {
		if err := r.mapper.Unmap(vmm.Range{Ptr: p.block.core.ID.Ptr, Bytes: p.block.mapped}); err != nil {
			s.books.Fails.Add(1)
			s.frees.putBack(p)
			first = cmp.Or(first, err)
			return
		}
		defer s.frees.unmapDone()
		batch := r.newBatch(s)
		batch.entries = append(batch.entries, p)
		r.release(batch)
	})
	return first
}

// ReapPending looks at every stream once and releases the frees that are
// completed. It tries again the frees that failed earlier, met a busy stream or
// a capture, and the ends of launches in the backlog. If more of the device is held than the share
// (SetShare), it gives back what of that is free.
func (r *tracker) ReapPending(context.Context) error { return cmp.Or(r.reapAll(), r.shrink()) }

// shrink gives back what is free beyond the share: a reaper does that in its own time, and there
// may be none.
func (r *tracker) shrink() error {
	if r.memory.held() <= r.share.forPool() {
		return nil
	}
	err := r.withMemory("ReapPending", func() error {
		return cmp.Or(r.memory.trim(r.share.forPool()), r.memory.reap()) // which reads what is held now
	})
	if errors.Is(err, core.ErrClosed) { // then all was given back
		return nil
	}
	return err
}

// reapAll is ReapPending but for shrink.
func (r *tracker) reapAll() error {
	first := r.retryParked()
	for _, s := range r.streams.table.streams() {
		first = cmp.Or(first, r.reapStream(s))
		first = cmp.Or(first, r.streams.forget(s))
	}
	first = cmp.Or(first, r.times.collect(), r.reapMapper())
	return cmp.Or(first, r.reapMemory())
}

// reapMemory is the memory's share of a reap.
func (r *tracker) reapMemory() error {
	err := r.withMemory("ReapPending", r.memory.reap)
	if errors.Is(err, core.ErrClosed) && r.inMemory.Load() == memoryGone {
		return r.memory.close()
	}
	return err
}

// retryParked does what could not be done before: the ends of launches and the frees
// that met a capture, and frees that the driver failed or whose stream was busy.
func (r *tracker) retryParked() error {
	first := r.retryBacklog()
	for _, s := range r.streams.table.streams() {
		err := r.retryFrees(s)
		first = cmp.Or(first, err)
	}
	return first
}

// reapStream releases the frees that are completed on s.
func (r *tracker) reapStream(s *stream) error {
	var first error
	if s.frees.pendingFrees() > 0 || s.pinned.Load() > 0 {
		var done *reapBatch
		s.Lock()
		s.unpin()
		done, first = r.takeCompleted(s, unlimited)
		s.Unlock()
		r.releaseCompleted(done)
	}
	err := r.unmapCompleted(s, unlimited)
	return cmp.Or(first, err)
}

// Drain reaps until every free that was queued when it was called is completed by the device, or
// ctx ends. Then it gives back what is free beyond the share. Frees queued meanwhile are not waited
// for, nor are blocks that are retired under an open intent. Captures must end before it can: an
// error then says so.
func (r *tracker) Drain(ctx context.Context) error {
	type target struct {
		frees   *freeQueue
		entered uint64
	}
	var targets []target
	first := r.retryParked()
	if err := r.awaitCaptures(ctx); err != nil {
		return cmp.Or(first, errors.Join(err, r.captures()))
	}
	if err := r.awaitUses(ctx); err != nil {
		return cmp.Or(first, err)
	}
	for _, s := range r.streams.table.streams() {
		targets = append(targets, target{&s.frees, s.frees.entered.Load()})
	}
	completed := r.memory.given()
	err := deadline.Poll(ctx, func() (bool, error) {
		if err := r.reapAll(); err != nil {
			return false, err
		}
		if !completed() {
			return false, nil
		}
		for _, t := range targets {
			if t.frees.releasedUpTo() < t.entered {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, r.captures())
	}
	return cmp.Or(err, first, r.shrink())
}

// awaitUses waits until no free that is parked now waits for uses on other streams.
func (r *tracker) awaitUses(ctx context.Context) error {
	var left []func() bool
	for _, s := range r.streams.table.streams() {
		left = append(left, s.frees.awaited())
	}
	return deadline.Poll(ctx, func() (bool, error) {
		left = slices.DeleteFunc(left, func(awaited func() bool) bool { return !awaited() })
		if len(left) == 0 {
			return true, nil
		}
		return false, r.retryParked()
	})
}

// startReaper looks at queued frees from time to time, so that a service that
// goes quiet still gets its memory back. An idle resource makes no call.
func (r *tracker) startReaper(interval time.Duration) {
	if interval < 0 {
		close(r.reaperDone)
		return
	}
	if interval == 0 {
		interval = defaultReapInterval
	}
	usercode.Go("the reaper", func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-r.reaperStop:
				return
			case now := <-ticker.C:
				r.forgetContexts(true)
				if r.hasPending() {
					_ = r.reapAll() // the next call reports a lasting error
				}
				_ = r.withMemory("ReapPending", func() error { return r.memory.tick(now) })
			}
		}
	}, func() {
		r.forgetContexts(false)
		close(r.reaperDone)
	})
}

// forgetContexts has each stream give up the context of its newest operation; more says that the
// reaper comes again.
func (r *tracker) forgetContexts(more bool) {
	for _, s := range r.streams.table.streams() {
		s.host.Forget(more)
	}
}

// hasPending reports whether a reap may find something to do.
func (r *tracker) hasPending() bool {
	for _, s := range r.streams.table.streams() {
		if s.frees.due() || s.pinned.Load() > 0 || r.streams.table.mayBeForgotten(s) {
			return true
		}
	}
	return r.backlog.n.Load() > 0 || r.times.outstandingAny() || r.mapper.Leftover() || r.memory.due()
}
