package cuda

import (
	"context"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// reapBatch is how many frees may queue on a stream before an allocation or
// a free there looks whether the device has passed them: one query and one
// record then serve that many frees.
const reapBatch = 32

// pending is a queued free.
type pending struct {
	block *block
	bytes uint64
}

// passed is a batch of entries that the device has passed.
type passed struct{ entries []pending }

var passedBatches = sync.Pool{New: func() any { return new(passed) }}

// reapStream releases what the device has passed on s. Frees are not marked
// one by one: a reap records one event behind all of them, and a later one
// (or the same, if the device is quick) sees it complete. It makes no call
// that blocks.
func (r *AsyncResource) reapStream(s *stream) error {
	s.mu.Lock()
	s.unpin()
	done, err := r.takePassed(s)
	s.mu.Unlock()
	r.release(s, done)
	return err
}

// reapSome looks at the queue on every reapBatch-th allocation or free of the
// stream; s.mu must be held. Failures are left to the next ReapPending.
func (r *AsyncResource) reapSome(s *stream) *passed {
	if s.operations++; s.operations < reapBatch || len(s.queue) == 0 {
		return nil
	}
	s.operations = 0
	done, _ := r.takePassed(s)
	return done
}

// takePassed removes what is done from the queue; s.mu must be held.
func (r *AsyncResource) takePassed(s *stream) (*passed, error) {
	batch := passedBatches.Get().(*passed)
	for len(s.queue) > 0 {
		if s.mark == nil {
			if err := r.markQueue(s); err != nil {
				return batch, err
			}
		}
		done, err := r.drv.EventQuery(s.mark.handle)
		if err != nil || !done {
			return batch, err
		}
		s.passed(s.mark.seq)
		s.mark.release()
		batch.entries = append(batch.entries, s.queue[:s.marked]...)
		left := copy(s.queue, s.queue[s.marked:])
		clear(s.queue[left:])
		s.queue = s.queue[:left]
		s.queued.Add(-int64(s.marked))
		s.mark, s.marked = nil, 0
	}
	return batch, nil
}

func (r *AsyncResource) markQueue(s *stream) error {
	mark, err := s.record(core.DefaultStream)
	if err != nil {
		return err
	}
	s.mark, s.marked = mark, len(s.queue)
	return nil
}

// release takes passed entries out of the books and tells the listeners. No
// lock may be held.
func (r *AsyncResource) release(s *stream, batch *passed) {
	if batch == nil {
		return
	}
	for i := range batch.entries {
		s.odometer.passed.Add(batch.entries[i].bytes)
		r.releaseBlock(batch.entries[i].block)
	}
	clear(batch.entries)
	batch.entries = batch.entries[:0]
	passedBatches.Put(batch)
}

func (r *AsyncResource) releaseBlock(b *block) {
	b.stream.books.released(&b.core)
	gone := b.core
	gone.State = core.Freed
	r.blocks.Delete(gone.ID.Generation)
	b.recycle()
	r.listeners.released(gone)
}

// ReapPending looks at every stream once and releases what the device has
// passed. It tries again the frees that the driver failed earlier.
func (r *AsyncResource) ReapPending(context.Context) error {
	first := r.retryUnfreed()
	for _, s := range r.streams.table.streams() {
		if s.queued.Load() > 0 {
			if err := r.reapStream(s); err != nil && first == nil {
				first = err
			}
		}
		if err := r.streams.retire(s); err != nil && first == nil {
			first = err
		}
	}
	if stats, err := r.drv.PoolStats(r.pool); err == nil {
		r.poolStats.Store(&stats)
	} else if first == nil {
		first = err
	}
	return first
}

// retryUnfreed frees what could not be freed before.
func (r *AsyncResource) retryUnfreed() error {
	r.mu.Lock()
	again := r.unfreed
	r.unfreed = nil
	r.mu.Unlock()
	var first error
	for _, b := range again {
		if err := r.free(b); err != nil {
			r.retryFree(b)
			if first == nil {
				first = err
			}
		}
	}
	return first
}

// Drain reaps until nothing is pending or ctx ends. Blocks that are retired
// under an open intent are not waited for.
func (r *AsyncResource) Drain(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		if err := r.ReapPending(ctx); err != nil {
			return false, err
		}
		for _, s := range r.streams.table.streams() {
			if s.queued.Load() > 0 {
				return false, nil
			}
		}
		return true, nil
	})
}

// startReaper looks at queued frees from time to time, so that a service that
// goes quiet still gets its memory back. An idle resource makes no call.
func (r *AsyncResource) startReaper(interval time.Duration) {
	if interval < 0 {
		close(r.reaperDone)
		return
	}
	if interval == 0 {
		interval = DefaultReapInterval
	}
	go func() {
		defer close(r.reaperDone)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-r.reaperStop:
				return
			case <-ticker.C:
				if r.hasPending() {
					_ = r.ReapPending(context.Background()) // the next call reports a lasting error
				}
			}
		}
	}()
}

func (r *AsyncResource) hasPending() bool {
	for _, s := range r.streams.table.streams() {
		if s.queued.Load() > 0 || s.last.Load() != nil {
			return true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unfreed) > 0
}

// Close stops the reaper, waits for pending frees until ctx ends, and
// destroys the pool. Live blocks stay valid until they are freed, which the
// device's context does at the latest. A second Close does nothing.
func (r *AsyncResource) Close(ctx context.Context) error {
	if !r.closed.CompareAndSwap(false, true) {
		return nil
	}
	close(r.reaperStop)
	<-r.reaperDone
	err := r.Drain(ctx)
	if poolErr := r.drv.PoolDestroy(r.pool); err == nil {
		err = poolErr
	}
	return err
}
