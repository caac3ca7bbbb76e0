package cuda

import (
	"cmp"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// setAside takes the isolated blocks out of a batch of completed frees: an unmap
// takes long, and it may be the end of a launch that found the mark completed.
// The next reap, or the next isolated allocation, unmaps them.
func (r *AsyncResource) setAside(s *stream, batch *reapBatch) {
	i := &r.isolated
	if i.notUnmapped.Load() == 0 {
		return
	}
	kept := batch.entries[:0]
	i.mu.Lock()
	for _, p := range batch.entries {
		if p.isolated == 0 {
			kept = append(kept, p)
		} else {
			i.toUnmap = append(i.toUnmap, completedFree{p, s})
		}
	}
	i.mu.Unlock()
	clear(batch.entries[len(kept):])
	batch.entries = kept
}

// unmap gives the memory of a block back that the device is done with, and
// keeps its addresses.
func (r *AsyncResource) unmap(s *stream, p pending) error {
	i := &r.isolated
	ptr, bytes := p.block.core.ID.Ptr, p.block.mapped
	if err := r.drv.MemUnmap(ptr, bytes); err != nil {
		s.books.Fails.Add(1)
		i.mu.Lock()
		i.toUnmap = append(i.toUnmap, completedFree{p, s})
		i.mu.Unlock()
		return err
	}
	i.mapped.Add(-int64(bytes))
	i.mu.Lock()
	i.kept = append(i.kept, addressRange{ptr, bytes})
	i.addresses.Add(int64(bytes))
	i.mu.Unlock()
	s.frees.unmapped.Add(p.block.core.Bytes)
	return nil
}

// takeDown unmaps the blocks whose free is completed, takes down what is left of
// mappings, and gives back the oldest addresses beyond the limits. What fails
// is tried again by the next call. No lock may be held.
func (r *AsyncResource) takeDown() error {
	i := &r.isolated
	var first error
	if i.notUnmapped.Load() > 0 {
		i.mu.Lock()
		due := i.toUnmap
		i.toUnmap = nil
		i.mu.Unlock()
		for _, x := range due {
			if err := r.unmap(x.stream, x.pending); err != nil {
				first = cmp.Or(first, err)
				continue
			}
			x.block.stream.books.releaseAll([]pending{x.pending}, core.Now())
			r.releaseBlock(x.block)
			i.forgetFree(x.isolated)
		}
	}
	first = cmp.Or(first, r.clearRemains())
	return cmp.Or(first, r.yield(i.maxBytes, i.maxRanges))
}

// yield gives addresses back, oldest first, until at most so many bytes and
// ranges are kept. A range that the driver does not take back stays, and stands
// in no other's way.
func (r *AsyncResource) yield(bytes uint64, ranges int) error {
	i := &r.isolated
	if i.addresses.Load() == 0 {
		return nil
	}
	i.yielding.Lock()
	defer i.yielding.Unlock()
	var first error
	refused := 0 // at the front
	for {
		oldest, ok := i.excess(bytes, ranges, refused)
		if !ok {
			return first
		}
		if err := r.drv.MemUnreserve(oldest.ptr, oldest.bytes); err != nil {
			first = cmp.Or(first, err)
			refused++
			continue
		}
		i.forget(refused)
	}
}

// excess is the oldest range behind those that were refused, if more is kept
// than the limits; yielding must be held.
func (i *isolation) excess(bytes uint64, ranges, refused int) (addressRange, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.kept) == refused || clamp(i.addresses.Load()) <= bytes && len(i.kept) <= ranges {
		return addressRange{}, false
	}
	return i.kept[refused], true
}

// forget drops a range that was given back; yielding must be held.
func (i *isolation) forget(at int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.addresses.Add(-int64(i.kept[at].bytes))
	if at == 0 {
		i.kept = i.kept[1:]
		return
	}
	i.kept = slices.Delete(i.kept, at, at+1)
}
