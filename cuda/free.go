package cuda

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// Deallocate queues the free on the allocation stream behind every
// outstanding use and hands the block to pending. While an intent is open the
// block is only retired: whoever closes the last intent queues the free.
func (r *AsyncResource) Deallocate(_ context.Context, id core.BlockID) (core.Block, error) {
	b, err := r.find("Deallocate", id, id.AllocStream)
	if err != nil {
		return core.Block{}, err
	}
	b.core.State = core.Retired
	result := b.core
	deferred := len(b.intents) > 0
	r.retire(b)
	b.mu.Unlock()
	if !deferred {
		if err := r.free(b); err != nil {
			r.revive(b)
			return core.Block{}, err
		}
	}
	return result, nil
}

// retire moves a block's books from live to pending, before the free can be
// queued and so before it can be reaped; b.mu must be held.
func (r *AsyncResource) retire(b *block) {
	b.stream.books.retire(&b.core)
	r.peaks.sub(&b.core, b.stream.books)
}

// revive makes a block live again whose free failed.
func (r *AsyncResource) revive(b *block) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.core.State = core.Live
	b.stream.books.retired.undo(&b.core)
	b.stream.books.fails.Add(1)
	r.peaks.restore(&b.core, b.stream.books)
}

// free queues the free of a retired block without open intents. It takes the
// accesses over for the while: nobody else looks at a retired block's. On an
// error the block is as it was.
func (r *AsyncResource) free(b *block) error {
	s, last, err := r.streams.forFrees(b.stream)
	if err != nil {
		return err
	}
	f := fences.Get().(*fence)
	for _, a := range b.accesses {
		f.add(s, a, -1)
	}
	if last != nil {
		f.add(s, access{event: last}, -1)
		last.release()
	}
	s.mu.Lock()
	if last == nil && s.last.Load() != nil { // given up meanwhile
		s.mu.Unlock()
		f.drop()
		fences.Put(f)
		return r.free(b)
	}
	err = f.queue(s, func(dependency) { s.books.waits.Add(1) })
	if err == nil {
		err = r.drv.MemFreeAsync(b.core.ID.Ptr, s.handle)
	}
	var done *passed
	if err == nil {
		queueFree(s, b)
		done = r.reapSome(s)
	}
	s.mu.Unlock()
	f.drop()
	fences.Put(f)
	r.release(s, done)
	return err
}

// queueFree hands b to the reaper of s, whose lock must be held.
func queueFree(s *stream, b *block) {
	for i := range b.accesses {
		b.accesses[i].event.release()
	}
	clear(b.accesses)
	b.accesses = b.accesses[:0]
	s.odometer.queued.Add(b.core.Bytes)
	s.freedBytes += b.core.Bytes
	s.queue = append(s.queue, pending{block: b, bytes: b.core.Bytes})
	s.queued.Add(1)
}

// keepUnfreed notes memory that was allocated for nobody and could not be
// given back at once: it is pending until a reap succeeds in freeing it.
// s.mu must be held.
func (r *AsyncResource) keepUnfreed(s *stream, ptr uint64, req core.Request) {
	b := r.record(s, ptr, req, core.Retired)
	s.books.allocated.add(&b.core)
	s.books.retired.add(&b.core)
	s.books.orphans.Add(1)
	s.books.blocks.store(b.core.ID.Generation, b)
	r.retryFree(b)
}

func (r *AsyncResource) retryFree(b *block) {
	r.mu.Lock()
	r.unfreed = append(r.unfreed, b)
	r.mu.Unlock()
}

// freeDeferred frees a block whose last intent has closed. The caller is not
// the one who asked for the free, so a failure is kept for the reaper.
func (r *AsyncResource) freeDeferred(b *block) {
	s := b.stream
	if err := r.free(b); err != nil {
		s.books.fails.Add(1)
		r.retryFree(b)
	}
}
