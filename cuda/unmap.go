package cuda

import (
	"cmp"

	"github.com/fencepost-gpu/fencepost/core"
)

// unmapPassed unmaps the isolated blocks of a batch that the device has passed.
// Those that could not be unmapped leave the batch and are tried again; they
// stay pending. No lock may be held.
func (r *AsyncResource) unmapPassed(s *stream, batch *passed) {
	if r.isolated.waiting.Load() == 0 {
		return
	}
	kept := batch.entries[:0]
	for _, p := range batch.entries {
		if p.isolated == 0 || r.unmap(s, p) == nil { // or else the next reap tells
			kept = append(kept, p)
		}
	}
	clear(batch.entries[len(kept):])
	batch.entries = kept
	_ = r.yield(r.isolated.maxBytes, r.isolated.maxRanges) // the next reap tells
}

// unmap gives the memory of a block back that the device is done with, and
// keeps its addresses.
func (r *AsyncResource) unmap(s *stream, p pending) error {
	i := &r.isolated
	ptr, bytes := p.block.core.ID.Ptr, p.block.mapped
	if err := r.drv.MemUnmap(ptr, bytes); err != nil {
		s.books.fails.Add(1)
		i.mu.Lock()
		i.stuck = append(i.stuck, stuckBlock{p, s})
		i.mu.Unlock()
		return err
	}
	i.mapped.Add(-int64(bytes))
	i.mu.Lock()
	i.kept = append(i.kept, addressRange{ptr, bytes})
	i.addresses.Add(int64(bytes))
	i.mu.Unlock()
	s.odometer.unmapped.Add(p.block.core.Bytes)
	return nil
}

// retryUnmaps unmaps what could not be unmapped before, takes down what is left
// of mappings, and gives back the oldest addresses beyond the limits.
func (r *AsyncResource) retryUnmaps() error {
	i := &r.isolated
	var first error
	if i.waiting.Load() > 0 {
		i.mu.Lock()
		stuck := i.stuck
		i.stuck = nil
		i.mu.Unlock()
		for _, x := range stuck {
			if err := r.unmap(x.stream, x.pending); err != nil {
				first = cmp.Or(first, err)
				continue
			}
			x.block.stream.books.releaseAll([]pending{x.pending}, core.Now())
			r.releaseBlock(x.block)
			i.done(x.isolated)
		}
	}
	first = cmp.Or(first, r.clearRemains())
	return cmp.Or(first, r.yield(i.maxBytes, i.maxRanges))
}

// yield gives addresses back, oldest first, until at most so many bytes and
// ranges are kept.
func (r *AsyncResource) yield(bytes uint64, ranges int) error {
	i := &r.isolated
	if i.addresses.Load() == 0 {
		return nil
	}
	i.yielding.Lock()
	defer i.yielding.Unlock()
	for {
		oldest, ok := i.excess(bytes, ranges)
		if !ok {
			return nil
		}
		if err := r.drv.MemUnreserve(oldest.ptr, oldest.bytes); err != nil {
			return err
		}
		i.forget(oldest)
	}
}

// excess is the oldest range if more is kept than the limits; yielding must be
// held.
func (i *isolation) excess(bytes uint64, ranges int) (addressRange, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.kept) == 0 || clamp(i.addresses.Load()) <= bytes && len(i.kept) <= ranges {
		return addressRange{}, false
	}
	return i.kept[0], true
}

// forget drops the oldest range, which was given back; yielding must be held.
func (i *isolation) forget(oldest addressRange) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kept = i.kept[1:]
	i.addresses.Add(-int64(oldest.bytes))
}
