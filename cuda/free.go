package cuda

import (
	"context"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

var fences = sync.Pool{New: func() any { return new(fence) }}

// Deallocate queues the free on the allocation stream behind every
// outstanding use and hands the block to pending. While a launch is announced
// on the block it is only retired: the last such launch to end queues the free.
// While the allocation stream is capturing it is only retired, too: a reap after
// the end of the capture queues the free.
func (r *AsyncResource) Deallocate(_ context.Context, id core.BlockID) (core.Block, error) {
	b, err := r.find("Deallocate", id, id.AllocStream)
	if err != nil {
		return core.Block{}, err
	}
	b.core.State = core.Retired
	result := b.core
	deferred := b.holdBack()
	b.stream.books.retire(&b.core) // before the free can be queued, and so reaped
	b.mu.Unlock()
	if !deferred {
		if err := r.freeOrHold(b); err != nil {
			r.revive(b)
			return core.Block{}, err
		}
	}
	return result, nil
}

// holdBack lets the launches announced on b hold its free back, and reports
// whether there are any; b.mu must be held.
func (b *block) holdBack() bool {
	b.holders = 0
	for i := range b.accesses {
		if e := b.accesses[i].event; e.isOpen() && e.hold(b) {
			b.holders++
		}
	}
	return b.holders > 0
}

// revive makes a block live again whose free failed.
func (r *AsyncResource) revive(b *block) {
	b.mu.Lock()
	b.core.State = core.Live
	revived, books := b.core, b.stream.books
	b.mu.Unlock()
	books.revive(&revived, &r.peaks, r.streams.table)
	books.fails.Add(1)
}

// free queues the free of a retired block on which no launch is announced. It
// takes the accesses over for the while: nobody else looks at a retired
// block's. On an error the block is as it was.
func (r *AsyncResource) free(b *block) error {
	s, last, err := r.streams.forFrees(b.stream)
	if err != nil {
		return err
	}
	if last == nil && b.usedOnlyOn(s) {
		if again, err := r.queueFree(s, b, nil); !again {
			return err
		}
		return r.free(b)
	}
	f := fences.Get().(*fence)
	again, err := r.freeBehind(s, b, f, last)
	f.drop()
	fences.Put(f)
	if again {
		return r.free(b)
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
func (r *AsyncResource) freeBehind(s *stream, b *block, f *fence, last *event) (again bool, err error) {
	b.settle(f)
	for i := range b.accesses {
		f.add(s, &b.accesses[i], -1)
	}
	if last != nil {
		f.add(s, &access{event: last}, -1)
		last.release()
	}
	return r.queueFree(s, b, f)
}

// queueFree queues waits and free as one step under the stream's lock. It
// answers again if the stream was given up meanwhile.
func (r *AsyncResource) queueFree(s *stream, b *block, f *fence) (again bool, err error) {
	s.mu.Lock()
	if s.last.Load() != nil && b.stream == s {
		s.mu.Unlock()
		return true, nil
	}
	if err := s.uncaptured(); err != nil {
		s.mu.Unlock()
		return false, err
	}
	if f != nil {
		err = f.queue(s, func(dependency) { s.books.waits.Add(1) })
	}
	if err == nil {
		err = r.drv.MemFreeAsync(b.core.ID.Ptr, s.handle)
	}
	var done *passed
	if err == nil {
		s.enterFree(b)
		done = r.reapSome(s)
	}
	s.mu.Unlock()
	r.release(s, done)
	return false, err
}

// enterFree hands b to the reaper of s, whose lock must be held.
func (s *stream) enterFree(b *block) {
	for i := range b.accesses {
		b.accesses[i].event.release()
	}
	b.accesses = b.accesses[:0]
	s.odometer.queued.Add(b.core.Bytes)
	s.freedBytes += b.core.Bytes
	s.queue = append(s.queue, pending{block: b, bytes: b.core.Bytes})
	s.queued.Store(int64(len(s.queue)))
}

func (r *AsyncResource) retryFree(b *block) {
	r.mu.Lock()
	r.unfreed = append(r.unfreed, b)
	r.mu.Unlock()
}

// freeDeferred frees a block whose last announced launch has ended. The caller
// is not the one who asked for the free, so a failure is kept for the reaper.
func (r *AsyncResource) freeDeferred(b *block) {
	s := b.stream
	if err := r.freeOrHold(b); err != nil {
		s.books.fails.Add(1)
		r.retryFree(b)
	}
}
