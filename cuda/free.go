package cuda

import (
	"context"
	"errors"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

var fences = sync.Pool{New: func() any { return new(fence) }}

// recycle drops a fence that was taken from the pool.
func (f *fence) recycle() {
	f.drop()
	fences.Put(f)
}

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
	b.stream.books.retire(&b.core, b.withheld) // before the free can be queued, and so reaped
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
	b.blockers = 0
	for i := range b.accesses {
		if e := b.accesses[i].event; e.isOpen() && e.blockFree(b) {
			b.blockers++
		}
	}
	return b.blockers > 0
}

// revive makes a block live again whose free failed.
func (r *AsyncResource) revive(b *block) {
	b.mu.Lock()
	b.core.State = core.Live
	revived, withheld, books := b.core, b.withheld, b.stream.books
	b.mu.Unlock()
	books.revive(&revived, withheld, &r.peaks, r.streams.table)
	books.fails.Add(1)
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
	if last == nil && b.usedOnlyOn(s) {
		if again, err := r.queueFree(s, b, nil, p); !again {
			return err
		}
		return r.free(b, p)
	}
	f := fences.Get().(*fence)
	again, err := r.freeBehind(s, b, f, last, p)
	f.recycle()
	if again {
		return r.free(b, p)
	}
	return err
}

// usedOnlyOn reports whether stream order alone orders the free.
func (b *block) usedOnlyOn(s *stream) bool {
	for i := range b.accesses {
		if b.accesses[i].event.stream != s {
			return false
		}
	}
	return true
}

// freeBehind queues the free behind the uses on other streams, and behind
// last if the block's stream was given up.
func (r *AsyncResource) freeBehind(s *stream, b *block, f *fence, last *event, p lockMode) (again bool, err error) {
	b.prune(f)
	for i := range b.accesses {
		f.add(s, &b.accesses[i], -1)
	}
	if last != nil {
		f.add(s, &access{event: last}, -1)
		last.release()
	}
	return r.queueFree(s, b, f, p)
}

// queueFree queues waits and free as one step under the stream's lock. It
// answers again if the stream was given up meanwhile.
func (r *AsyncResource) queueFree(s *stream, b *block, f *fence, p lockMode) (again bool, err error) {
	if !s.lock(p) {
		return false, errBusy
	}
	if s.isGivenUp() && b.stream == s {
		s.mu.Unlock()
		return true, nil
	}
	if err := s.uncaptured(); err != nil {
		s.mu.Unlock()
		return false, err
	}
	s.freeAttempts++
	if f != nil {
		err = f.queue(s, func(dependency) { s.books.waits.Add(1) })
	}
	if err == nil && b.mapped == 0 {
		err = r.drv.MemFreeAsync(b.core.ID.Ptr, s.handle)
	}
	var done *reapBatch
	if err == nil {
		s.enterFree(b, r.numbered(b))
		done = r.reapSome(s)
	}
	s.mu.Unlock()
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
	for i := range b.accesses {
		b.accesses[i].event.release()
	}
	b.accesses = b.accesses[:0]
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
			s.books.fails.Add(1)
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
		s.mu.Lock()
		return true
	}
	return s.mu.TryLock()
}
