package cuda

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
)

// A stream's queue of frees is looked at after reapOperations allocations and
// frees there, so that one query and one record serve many of them, and after
// reapBytes of frees, so that large blocks are not kept from others for long.
const (
	reapOperations = 32
	reapBytes      = 32 << 20
)

// pending is a queued free. Its bytes are those that later allocations can use
// in stream order: none of an isolated block.
type pending struct {
	block *block
	bytes uint64
	// isolated is the number of an isolated block's free, 0 for others.
	isolated uint64
}

// reapBatch is frees that are completed, on their way out of the books.
type reapBatch struct {
	entries []pending
	freed   freeRange
}

var reapBatches = sync.Pool{New: func() any { return new(reapBatch) }}

// reapStream releases the frees that are completed on s. Frees are not marked
// one by one: a reap records one event behind all of them, and a later one
// (or the same, if the device is quick) finds it completed. It makes no call
// that blocks.
func (r *AsyncResource) reapStream(s *stream) error {
	s.Lock()
	s.unpin()
	done, err := r.collectCompleted(s)
	s.Unlock()
	r.releaseBatch(s, done)
	return err
}

// reapSome is called at every allocation and free of the stream and looks at
// the queue when that is due; s.mu must be held. Failures are left to the
// next ReapPending.
func (r *AsyncResource) reapSome(s *stream) *reapBatch {
	s.operations++
	if len(s.queue) == 0 || s.operations < reapOperations && s.freedBytes < reapBytes {
		return nil
	}
	done, _ := r.collectCompleted(s)
	return done
}

// collectCompleted takes the completed frees from the queue; s.mu must be held.
func (r *AsyncResource) collectCompleted(s *stream) (*reapBatch, error) {
	batch := reapBatches.Get().(*reapBatch)
	batch.freed = freeRange{s.dequeuedBytes, s.dequeuedBytes}
	s.operations, s.freedBytes = 0, 0
	defer func() { s.dequeuedBytes = batch.freed.to }()
	for len(s.queue) > 0 {
		if s.mark == nil {
			if err := r.markQueue(s); err != nil {
				return batch, unlessCapturing(err)
			}
		}
		if done, err := s.QueryMark(s.mark); err != nil || !done {
			return batch, err
		}
		s.mark.Release()
		for _, p := range s.queue[:s.marked] {
			batch.entries = append(batch.entries, p)
			batch.freed.to += p.bytes
		}
		left := copy(s.queue, s.queue[s.marked:])
		clear(s.queue[left:])
		s.queue = s.queue[:left]
		s.queued.Store(int64(left))
		s.mark, s.marked = nil, 0
	}
	return batch, nil
}

// markQueue puts a mark behind all queued frees; s.mu must be held. A stream
// that was given up is not named again: its final point is behind them all.
func (r *AsyncResource) markQueue(s *stream) error {
	if !s.IsGivenUp() {
		if err := s.Uncaptured(); err != nil {
			return err
		}
	}
	mark, err := s.FinalOrRecord(core.DefaultStream)
	if err != nil {
		return err
	}
	s.mark, s.marked = mark, len(s.queue)
	return nil
}

// releaseBatch takes completed frees out of the books and tells the listeners. No
// lock may be held.
func (r *AsyncResource) releaseBatch(s *stream, batch *reapBatch) {
	if batch == nil {
		return
	}
	r.setAside(s, batch)
	if len(batch.entries) > 0 {
		batch.leaveBooks(core.Now())
	}
	for i := range batch.entries {
		p := &batch.entries[i]
		s.frees.completed.Add(p.bytes)
		r.releaseBlock(p.block)
	}
	if batch.freed.to > batch.freed.from {
		s.frees.noteReleased(batch.freed)
	}
	clear(batch.entries)
	batch.entries = batch.entries[:0]
	reapBatches.Put(batch)
}

// leaveBooks takes the books' lock once for the blocks that follow each other
// there: most often all of them. They all became reusable now.
func (p *reapBatch) leaveBooks(now core.Instant) {
	for from := 0; from < len(p.entries); {
		of := p.entries[from].block.stream.books
		to := from + 1
		for to < len(p.entries) && p.entries[to].block.stream.books == of {
			to++
		}
		of.releaseAll(p.entries[from:to], now)
		from = to
	}
}

// releaseBlock recycles the record. It keeps what it says, so that a straggler
// who found it meanwhile reads that it is retired, until it is filled anew
// under its lock.
func (r *AsyncResource) releaseBlock(b *block) {
	gone := b.core
	gone.State = core.Freed
	blocks.Put(b)
	r.listeners.Released(gone)
}

// ReapPending looks at every stream once and releases the frees that are
// completed. It tries again the frees that failed earlier, or met a busy stream.
func (r *AsyncResource) ReapPending(context.Context) error {
	first := r.retryUnfreed()
	for _, s := range r.streams.table.streams() {
		if s.queued.Load() > 0 || s.pinned.Load() > 0 {
			if err := r.reapStream(s); err != nil && first == nil {
				first = err
			}
		}
		if err := r.streams.retire(s); err != nil && first == nil {
			first = err
		}
	}
	if err := r.takeDown(); err != nil && first == nil {
		first = err
	}
	if _, err := r.readPool(); first == nil && !errors.Is(err, core.ErrClosed) { // gone, it holds nothing new
		first = err
	}
	return first
}

// retryUnfreed does what could not be done before: frees that the driver failed or
// whose stream was busy, and the backlog of captures.
func (r *AsyncResource) retryUnfreed() error {
	r.retrying.Lock() // nobody may take them for freed meanwhile
	defer r.retrying.Unlock()
	first := r.retryBacklog()
	r.mu.Lock()
	again := r.unfreed
	r.unfreed = nil
	r.mu.Unlock()
	for _, b := range again {
		if err := r.freeOrBacklog(b, waitForLock); err != nil {
			r.retryFree(b)
			if first == nil {
				first = err
			}
		}
	}
	return first
}

// Drain reaps until every free that was queued when it was called is completed
// by the device, or ctx ends. Frees queued meanwhile are not waited
// for, nor are blocks that are retired under an open intent. Captures must end
// before it can: an error then says so.
func (r *AsyncResource) Drain(ctx context.Context) error {
	type target struct {
		frees  *freeCounters
		queued uint64
	}
	var targets []target
	first := r.retryUnfreed()
	if err := r.drainBacklog(ctx); err != nil {
		return cmp.Or(first, errors.Join(err, r.captures()))
	}
	isolated := r.isolated.newest()
	for _, s := range r.streams.table.streams() {
		targets = append(targets, target{&s.frees, s.frees.queued.Load()})
	}
	err := deadline.Poll(ctx, func() (bool, error) {
		if err := r.ReapPending(ctx); err != nil {
			return false, err
		}
		for _, t := range targets {
			if t.frees.released.Load() < t.queued {
				return false, nil
			}
		}
		return r.isolated.freedUpTo(isolated), nil
	})
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, r.captures())
	}
	return cmp.Or(err, first)
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
		if s.queued.Load() > 0 || s.pinned.Load() > 0 || r.streams.table.awaitsRetirement(s) {
			return true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unfreed) > 0 || r.backlog.n.Load() > 0 || r.isolated.due()
}
