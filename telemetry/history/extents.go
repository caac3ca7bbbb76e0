package history

import (
	"cmp"
	"slices"
	"sort"

	"github.com/fencepost-gpu/fencepost/core"
)

// extents are blocks that do not overlap, by address.
type extents []*memory

// first is the index of the first block that ends behind address.
func (x extents) first(address uint64) int {
	return sort.Search(len(x), func(i int) bool { return x[i].end() > address })
}

// over are the blocks that have bytes in common with h.
func (x extents) over(h *memory) (found []core.Generation) {
	for i := x.first(h.id.Ptr); i < len(x) && x[i].id.Ptr < h.end(); i++ {
		found = append(found, x[i].id.Generation)
	}
	return found
}

func (x *extents) insert(h *memory) { *x = slices.Insert(*x, x.first(h.id.Ptr), h) }

// remove takes out h, which was inserted.
func (x *extents) remove(h *memory) {
	i := x.first(h.id.Ptr)
	*x = slices.Delete(*x, i, i+1)
}

// extent is a range of addresses.
type extent struct{ from, to uint64 }

// merge joins extents that touch, and sorts them.
func merge(all []extent) []extent {
	slices.SortFunc(all, func(a, b extent) int { return cmp.Compare(a.from, b.from) })
	var merged []extent
	for _, e := range all {
		if n := len(merged); n > 0 && e.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, e.to)
			continue
		}
		merged = append(merged, e)
	}
	return merged
}

// places are blocks by address, whenever they had it.
type places struct {
	sorted []memory
	// largest is the size of the largest.
	largest uint64
}

func newPlaces(all []memory) places {
	p := places{sorted: slices.SortedFunc(slices.Values(all), func(a, b memory) int { return cmp.Compare(a.id.Ptr, b.id.Ptr) })}
	for i := range all {
		p.largest = max(p.largest, all[i].bytes)
	}
	return p
}

// overlapOlder reports whether a block that is older than h had some of its
// bytes.
func (p places) overlapOlder(h *memory) bool {
	lowest := h.id.Ptr - min(p.largest, h.id.Ptr)
	i := sort.Search(len(p.sorted), func(i int) bool { return p.sorted[i].id.Ptr >= lowest })
	for ; i < len(p.sorted) && p.sorted[i].id.Ptr < h.end(); i++ {
		if a := &p.sorted[i]; a.end() > h.id.Ptr && a.id.Generation < h.id.Generation {
			return true
		}
	}
	return false
}
