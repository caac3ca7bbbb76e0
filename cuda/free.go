package cuda

import (
	"errors"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/internal/books"
	"github.com/fencepost-gpu/fencepost/internal/fence"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// free queues the free of an operation's block, or parks it.
func (r *tracker) free(o *path.Op) error {
	b, err := r.streams.table.find("Deallocate", o.ID, o.ID.AllocStream)
	if err != nil {
		return err
	}
	b.core.State = core.Retired
	o.Block, o.Record = b.core, &b.Record
	waits := b.awaitLaunches()
	if waits == waitsForLaunches || !r.givesAtOnce(b) {
		b.retire() // before the free can be queued, and so reaped
	}
	b.mu.Unlock()
	if waits == waitsForLaunches {
		return nil
	}
	waits, done, err := r.queueFree(b, true)
	if err != nil {
		r.revive(b)
		return err
	}
	defer r.releaseCompleted(done)
	if waits == waitsForNothing {
		o.Block.State = core.Freed
		b.stream.books.free(b)
		r.releaseBlock(b)
	} else {
		r.parkUnlessQueued(b, waits)
	}
	return nil
}

// givesAtOnce reports whether a block is released by who queues its free.
func (r *tracker) givesAtOnce(b *block) bool { return r.atOnce && !b.isIsolated() }

// retire counts a block as retired, since now. No other caller frees it.
func (b *block) retire() {
	b.freeRequested = monotime.Now()
	b.stream.books.Retire(&b.core, &b.entry)
}

// awaitLaunches makes a block that was retired wait for the launches announced on it,
// if there are any; b.mu must be held.
func (b *block) awaitLaunches() freeState {
	b.waits = waitsForStream
	if b.history.Watch() {
		b.waits = waitsForLaunches
	}
	return b.waits
}

// launchesEnded frees those of the blocks of a launch that has ended that waited for it alone: some may have. It returns what
// is to be released. No lock may be held.
func (r *tracker) launchesEnded(l *launch) (done *reapBatch) {
	for _, b := range l.blocks {
		done = done.followedBy(r.launchEnded(b))
	}
	return done
}

// launchEnded moves a block on that waited for launches, if this was the last of
// them. Its caller did not request the free, so a failure is left to the reaper. Nor
// does the caller have any business with the block's stream, whose lock may be held for
// as long as the driver takes to get more memory: so it does not wait for the lock. It
// returns what is to be released.
func (r *tracker) launchEnded(b *block) *reapBatch {
	if !b.mayBeFreed() {
		return nil
	}
	books := b.stream.books
	waits, done, err := r.queueFree(b, false)
	if err != nil {
		books.Fails.Add(1)
	}
	if waits == waitsForNothing {
		return done.followedBy(r.batchOf(b))
	}
	r.parkUnlessQueued(b, waits)
	return done
}

// mayBeFreed reports whether the last launch that the block waited for has ended, and
// does so once. A poisoned block waits for ever.
func (b *block) mayBeFreed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits != waitsForLaunches || b.poisoned || b.history.HasOpen() {
		return false
	}
	b.waits = waitsForStream
	return true
}

// revive makes a block live again whose free failed.
func (r *tracker) revive(b *block) {
	b.mu.Lock()
	b.core.State = core.Live
	own, retired := b.stream.books, b.freeRequested != 0
	b.freeRequested = 0
	var short books.Shortage
	if retired {
		short = own.Revive(&b.core, &b.entry)
	}
	b.mu.Unlock()
	r.streams.table.group.Raise(short)
	own.Fails.Add(1)
}

// parkUnlessQueued keeps a block whose free could not be queued, for the next reap.
func (r *tracker) parkUnlessQueued(b *block, waits freeState) {
	if waits == waitsForDevice {
		return
	}
	if b.freeRequested == 0 {
		b.retire()
	}
	if !b.stream.frees.park(b, waits) {
		r.streams.table.defaultStream().frees.park(b, waits)
	}
}

// await makes the free of a block wait for the uses that behind stands for, alone.
func (b *block) await(behind *fence.Frontier) freeState {
	b.behind = behind
	b.history.Release()
	return waitsForUses
}

// retryFrees tries again to queue what is parked with s.
func (r *tracker) retryFrees(s *stream) error {
	var done *reapBatch
	var look fence.Look
	leaving := int64(0)
	defer func() { s.frees.leaving.Add(-leaving) }()
	err := s.frees.retry(func(b *block) (freeState, error) {
		if b.behind != nil {
			if completed, err := look.IsCompleted(b.behind); !completed {
				return waitsForUses, err
			}
			b.behind.Release()
			b.behind = nil
			if r.givesAtOnce(b) { // it is given since it was freed
				s.frees.leaving.Add(1)
				leaving++
				s.frees.bytes.apart.Add(b.core.Bytes)
				done = done.followedBy(r.batchOf(b))
				return waitsForNothing, nil
			}
		}
		waits, more, err := r.queueFree(b, true)
		done = done.followedBy(more)
		if waits == waitsForNothing {
			done = done.followedBy(r.batchOf(b))
		}
		return waits, err
	})
	r.releaseCompleted(done)
	return err
}

// errGivenUp is why queueFree chooses the stream anew: it was given up after
// it was chosen.
var errGivenUp = errors.New("the stream was given up")

// queueFree queues the free of a retired block on which no launch is announced, and
// returns what the block waits for then: if that went well waitsForDevice, or waitsForNothing
// where the memory gives at once, and the caller releases the block. It
// takes the accesses over for the while: no other code looks at a retired
// block's. If the free is not queued the block is as it was, with an error if
// the driver refused. With wait it waits for the stream's lock. What it finds completed
// is the caller's to release.
func (r *tracker) queueFree(b *block, wait bool) (freeState, *reapBatch, error) {
	for {
		s, final, err := r.streams.forFrees(b.stream)
		if err != nil {
			return waitsForRetry, nil, err
		}
		var waits freeState
		var done *reapBatch
		if final == nil && b.history.UsedOnlyOn(&s.Stream) {
			waits, done, err = r.queueFreeOn(s, b, nil, wait)
		} else {
			waits, done, err = r.queueFreeBehind(s, b, final, wait)
		}
		if !errors.Is(err, errGivenUp) {
			return waits, done, err
		}
	}
}

// queueFreeBehind queues the free that must come after uses on other streams, and after final if
// the block's stream was given up.
func (r *tracker) queueFreeBehind(s *stream, b *block, final *fence.Point, wait bool) (freeState, *reapBatch, error) {
	plan := plans.Get().(*fence.Plan)
	defer recyclePlan(plan)
	b.history.PlanFree(&s.Stream, plan)
	if final != nil {
		plan.AddFinal(&s.Stream, final)
		final.Release()
	}
	return r.queueFreeOn(s, b, plan, wait)
}

// queueFreeOn queues waits and free as one step under the stream's lock.
func (r *tracker) queueFreeOn(s *stream, b *block, plan *fence.Plan, wait bool) (waits freeState, done *reapBatch, err error) {
	if wait {
		s.Lock()
	} else if !s.TryLock() {
		return waitsForRetry, nil, nil
	}
	if waits, err = r.queueFreeLocked(s, b, plan); waits >= waitsForDevice {
		done = r.takeSome(s)
	}
	s.Unlock()
	return waits, done, err
}

// uncapturedForFree is Uncaptured, and nil for a free on the default stream that enqueues nothing. s is locked.
func (r *tracker) uncapturedForFree(s *stream, b *block, plan *fence.Plan) error {
	if s.isDefault() && plan == nil && r.givesAtOnce(b) {
		return nil
	}
	return s.Uncaptured()
}

// queueFreeLocked is queueFreeOn with the stream's lock held. The error is errGivenUp if nothing
// may be queued on s any more. The backstop has no work to hold up, so that it waits for the uses;
// and with DeviceOrder each stream does, because what the host sees completed orders nothing.
func (r *tracker) queueFreeLocked(s *stream, b *block, plan *fence.Plan) (freeState, error) {
	if s.IsGivenUp() { // the backstop, too, where Close has destroyed it
		return waitsForRetry, errGivenUp
	}
	if err := r.uncapturedForFree(s, b, plan); err != nil {
		if errors.Is(err, fence.ErrCapturing) {
			return waitsForCapture, nil
		}
		return waitsForRetry, err
	}
	s.freeAttempts++
	var behind *fence.Frontier
	switch {
	case plan == nil:
	case s != b.stream || s.DeviceOrder():
		if err := plan.QueueFree(&s.Stream, nil); err != nil {
			return waitsForRetry, err
		}
	default:
		behind = plan.Frontier(&s.Stream)
	}
	if r.oracle != nil && b.isIsolated() { // it is unmapped later
		r.oracle.BlockIsWithheld(b.core.ID.Ptr)
	}
	if behind != nil && !r.givesAtOnce(b) {
		if r.oracle != nil {
			r.oracle.BlockEnds(b.core.ID.Ptr, s.Handle(), slices.Collect(behind.Events)...)
		}
		return b.await(behind), nil
	}
	if !b.isIsolated() {
		if err := r.memory.give(s, b.core.ID.Ptr, b.core.Bytes, behind); err != nil {
			if behind != nil {
				behind.Release()
			}
			return waitsForRetry, err
		}
	}
	s.calls.freed++
	if r.givesAtOnce(b) {
		s.calls.freedBytes += b.core.Bytes
		if behind != nil {
			return b.await(behind), nil
		}
		b.history.Release()
		s.frees.bytes.apart.Add(b.core.Bytes)
		return waitsForNothing, nil
	}
	b.history.Release()
	s.calls.freedBytes += s.frees.enter(b)
	return waitsForDevice, nil
}
