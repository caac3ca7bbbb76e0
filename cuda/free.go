package cuda

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// Deallocate queues the free on the allocation stream behind every
// outstanding use and hands the block to pending. While a launch is announced
// on the block it is only retired: the last such launch to end queues the
// free, or leaves it to the next reap. While the allocation stream is capturing
// the block is only retired, too: a reap after the end of the capture queues the
// free.
func (r *AsyncResource) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	return r.DeallocateRequestedAt(ctx, id, core.Now())
}

// DeallocateRequestedAt is Deallocate for a free that was requested earlier.
func (r *AsyncResource) DeallocateRequestedAt(_ context.Context, id core.BlockID, requested core.Instant) (core.Block, error) {
	b, err := r.find("Deallocate", id, id.AllocStream)
	if err != nil {
		return core.Block{}, err
	}
	b.core.State, b.freeRequested = core.Retired, requested
	result := b.core
	blocked := b.blockFree()
	b.stream.books.Retire(&b.core, b.withheld) // before the free can be queued, and so reaped
	b.mu.Unlock()
	if !blocked {
		if err := r.freeOrBacklog(b, waitForLock); err != nil {
			r.revive(b)
			return core.Block{}, err
		}
	}
	return result, nil
}

// blockFree lets the launches announced on b block its free, and reports
// whether there are any; b.mu must be held.
func (b *block) blockFree() bool {
	b.blockers = b.history.Watch(b)
	return b.blockers > 0
}

// revive makes a block live again whose free failed.
func (r *AsyncResource) revive(b *block) {
	b.mu.Lock()
	b.core.State = core.Live
	revived, withheld, books := b.core, b.withheld, b.stream.books
	b.mu.Unlock()
	books.Revive(&revived, withheld)
	books.Fails.Add(1)
}

// free queues the free of a retired block on which no launch is announced. It
// takes the accesses over for the while: nobody else looks at a retired
// block's. On an error the block is as it was; with tryLock that may be errBusy,
// because the stream's lock is not waited for.
func (r *AsyncResource) free(b *block, p lockMode) error {
	s, last, err := r.streams.forFrees(b.stream)
	if err != nil {
		return err
	}
	if last == nil && b.history.UsedOnlyOn(&s.Stream) {
		if again, err := r.queueFree(s, b, nil, p); !again {
			return err
		}
		return r.free(b, p)
	}
	plan := plans.Get().(*fence.Plan)
	again, err := r.freeBehind(s, b, plan, last, p)
	recyclePlan(plan)
	if again {
		return r.free(b, p)
	}
	return err
}

// freeBehind queues the free behind the uses on other streams, and behind
// last if the block's stream was given up.
func (r *AsyncResource) freeBehind(s *stream, b *block, plan *fence.Plan, last *fence.Point, p lockMode) (again bool, err error) {
	b.history.PlanFree(&s.Stream, plan)
	if last != nil {
		plan.AddFinal(&s.Stream, last)
		last.Release()
	}
	return r.queueFree(s, b, plan, p)
}

// queueFree queues waits and free as one step under the stream's lock. It
// answers again if the stream was given up meanwhile.
func (r *AsyncResource) queueFree(s *stream, b *block, plan *fence.Plan, p lockMode) (again bool, err error) {
	if !s.lock(p) {
		return false, errBusy
	}
	if s.IsGivenUp() && b.stream == s {
		s.Unlock()
		return true, nil
	}
	if err := s.Uncaptured(); err != nil {
		s.Unlock()
		return false, err
	}
	s.freeAttempts++
	if plan != nil {
		err = plan.QueueFree(&s.Stream)
	}
	if err == nil && b.mapped == 0 {
		err = r.drv.MemFreeAsync(b.core.ID.Ptr, s.Handle())
	}
	var done *reapBatch
	if err == nil {
		s.enterFree(b, r.numbered(b))
		done = r.reapSome(s)
	}
	s.Unlock()
	r.releaseBatch(s, done)
	return false, err
}

// numbered returns the number of an isolated block's free, 0 for others.
func (r *AsyncResource) numbered(b *block) uint64 {
	if b.mapped == 0 {
		return 0
	}
	return r.isolated.numberFree()
}

// enterFree hands b to the reaper of s, whose lock must be held.
func (s *stream) enterFree(b *block, isolated uint64) {
	b.history.Release()
	p := pending{block: b, isolated: isolated}
	if isolated == 0 {
		p.bytes = b.core.Bytes
		s.frees.queued.Add(p.bytes)
	}
	s.freedBytes += max(p.bytes, b.mapped)
	s.calls.freed++
	s.calls.freedBytes += p.bytes
	s.queue = append(s.queue, p)
	s.queued.Store(int64(len(s.queue)))
}

func (r *AsyncResource) retryFree(b *block) {
	r.mu.Lock()
	r.unfreed = append(r.unfreed, b)
	r.mu.Unlock()
}

// freeUnblocked frees a block whose last announced launch has ended. The caller
// did not request this free, so a failure is left to the reaper. Nor does the
// caller have any business with the block's stream, whose lock may be held for as
// long as the driver takes to get more memory: so it does not wait for the lock.
func (r *AsyncResource) freeUnblocked(b *block) {
	s := b.stream
	if err := r.freeOrBacklog(b, tryLock); err != nil {
		if !errors.Is(err, errBusy) {
			s.books.Fails.Add(1)
		}
		r.retryFree(b)
	}
}

// lockMode says whether a free waits for the stream's lock.
type lockMode bool

const (
	waitForLock lockMode = true
	tryLock     lockMode = false
)

// errBusy is the error of a free that does not wait for the lock. It reaches no
// caller of the package.
var errBusy = errors.New("the stream is busy")

func (s *stream) lock(p lockMode) bool {
	if p == waitForLock {
		s.Lock()
		return true
	}
	return s.TryLock()
}

// LaunchEnded frees the block if no other launch blocks its free.
func (b *block) LaunchEnded() {
	b.mu.Lock()
	b.blockers--
	due := b.blockers == 0 && !b.poisoned
	b.mu.Unlock()
	if due {
		b.stream.table.resource.freeUnblocked(b)
	}
}
