package cuda

import (
	"cmp"
	"slices"
)

// unmap gives the memory of a block back that the device is done with, and
// keeps its addresses.
func (r *AsyncResource) unmap(ptr, bytes uint64) error {
	if err := r.drv.MemUnmap(ptr, bytes); err != nil {
		return err
	}
	i := &r.isolated
	i.mapped.Add(-int64(bytes))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kept = append(i.kept, addressRange{ptr, bytes})
	i.addresses.Add(int64(bytes))
	return nil
}

// clearMappings takes down what is left of mappings, and gives back the oldest
// addresses beyond the limits. What fails is tried again by the next call. No lock may
// be held.
func (r *AsyncResource) clearMappings() error {
	first := r.clearRemains()
	err := r.yield(r.isolated.maxBytes, r.isolated.maxRanges)
	return cmp.Or(first, err)
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
