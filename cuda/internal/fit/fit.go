// Package fit knows which bytes of an arena's device memory are free. It is the two-level
// segregated fit of Masmano, Ripoll, Crespo and Real (TLSF, ECRTS 2004) with its records on
// the host: device memory is not read or written, and no driver is called.
//
// # What is kept
//
// Memory comes and goes in whole pages. What lies in a row is a run, however it came: a
// list of records in the order of addresses, each a block that is taken or a free range,
// with an edge of no bytes at both ends. No two free ranges are neighbours.
//
// A free range has a mark: the number of the place on the arena's stream behind which
// others may use it. Ranges that merge get the newer of their marks, also for those of
// their bytes that could have been used earlier. The arena's own stream needs no mark, so
// Take looks at none.
//
// Free ranges are in lists by class: 32 classes between a size and its double, so sizes
// of one class differ by a 32nd at most; below 8 KiB there is one for each size. Two levels of
// bitmaps find a class that is not empty in constant time.
package fit

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// unit is the size in bytes of which blocks are multiples, and so their alignment.
const unit = core.DefaultAlign

// Fit is the memory of one arena. It is not safe for concurrent use: the arena's lock
// guards it. No method blocks. Take and Give take constant time, but for a Take that
// walks the class of its own size because no larger class has a range; they allocate
// only when there are more blocks and ranges than there ever were.
type Fit struct {
	page    uint64
	free    uint64
	used    uint64
	held    uint64
	lowest  uint64 // see TurnLowest
	ranges  classes
	blocks  table
	edges   map[uint64]*record // where runs begin and end
	records store
	holds   []hold
}

// New is a fit without memory, for pages of so many bytes: a multiple of [core.DefaultAlign].
func New(page uint64) *Fit { return &Fit{page: page, edges: map[uint64]*record{}} }

// Add makes whole pages free that this fit does not have. They merge with the memory on
// both sides.
func (f *Fit) Add(ptr, bytes, mark uint64) {
	r := f.records.get(ptr, bytes)
	r.mark = mark
	join(f.reach(ptr), r)
	join(r, f.reach(ptr+bytes))
	f.free += bytes
	f.release(r)
}

// Take takes a block of so many bytes, rounded up to [core.DefaultAlign], from a free
// range that is among the smallest with so many. It answers false, and changes nothing, only
// if there is no range with so many.
func (f *Fit) Take(bytes uint64) (ptr uint64, ok bool) {
	if bytes > f.free {
		return 0, false
	}
	bytes = roundUp(max(bytes, 1), unit)
	r := f.ranges.find(bytes)
	if r == nil {
		return 0, false
	}
	r = f.carve(r, bytes)
	r.mark = 0
	f.blocks.insert(r)
	f.free -= bytes
	f.used += bytes
	f.lowest = min(f.lowest, f.free)
	return r.ptr, true
}

// Give frees the block at ptr and returns its size. It answers false for every address
// that Take has not returned, or that was given since.
func (f *Fit) Give(ptr, mark uint64) (bytes uint64, ok bool) {
	r := f.blocks.remove(ptr)
	if r == nil {
		return 0, false
	}
	bytes = r.bytes
	r.mark = mark
	f.used -= bytes
	f.free += bytes
	f.release(r)
	return bytes, true
}

// Cut takes free pages out of the fit: so many bytes in a row, rounded up to pages, with
// the mark of the range that they are of. That is the smallest one that has them and
// whose mark is covered; if covered is nil, all marks are. The rest of the range stays. It
// takes a time that grows with the number of ranges of that size.
func (f *Fit) Cut(bytes uint64, covered func(mark uint64) bool) (ptr, n, mark uint64, ok bool) {
	if bytes > f.free {
		return 0, 0, 0, false
	}
	n = roundUp(max(bytes, 1), f.page)
	r := f.smallest(n, covered)
	if r == nil {
		return 0, 0, 0, false
	}
	from, to := f.within(r)
	ptr = to - n
	if from-r.ptr < r.end()-to { // the part that is left alone should be the smaller one
		ptr = from
	}
	mark = r.mark
	f.cut(r, ptr, n)
	return ptr, n, mark, true
}

// CutAt takes some pages out of the fit, if they are free, of one range, and its mark is
// covered. If covered is nil, all marks are. It takes a time that grows with the number of ranges that
// have as many pages.
func (f *Fit) CutAt(ptr, n uint64, covered func(mark uint64) bool) (ok bool) {
	f.ranges.each(n, func(r *record) bool {
		if ptr < r.ptr || ptr+n > r.end() {
			return true
		}
		if ok = covered == nil || covered(r.mark); ok {
			f.cut(r, ptr, n)
		}
		return false
	})
	return ok
}

// cut takes pages out of the fit that are of a free range.
func (f *Fit) cut(r *record, ptr, n uint64) {
	if below := ptr - r.ptr; below > 0 {
		rest := f.carve(r, below)
		r = rest.above
		f.ranges.insert(rest)
	}
	f.detach(f.carve(r, n))
	f.free -= n
	f.lowest -= min(f.lowest, n)
}

// Beside is how many bytes are free below an address at which memory of the fit ends, and above one
// at which some begins; no bytes at others.
func (f *Fit) Beside(at uint64) (below, above uint64) {
	e := f.edges[at]
	switch {
	case e == nil:
	case e.below != nil && e.below.free:
		below = e.below.bytes
	case e.above != nil && e.above.free:
		above = e.above.bytes
	}
	return below, above
}

// Pages calls yield for the wholly free pages of each range that has some, in no order,
// until that returns false. The fit must not change meanwhile.
func (f *Fit) Pages(yield func(ptr, n, mark uint64) bool) {
	f.ranges.each(f.page, func(r *record) bool {
		from, to := f.within(r)
		return from >= to || yield(from, to-from, r.mark)
	})
}

// Mark gives all that is free or held another mark.
func (f *Fit) Mark(mark uint64) {
	for _, h := range f.holds {
		h.mark = mark
	}
	f.ranges.each(unit, func(r *record) bool {
		r.mark = mark
		return true
	})
}

// Bytes is how much memory is free or held, and how much is taken.
func (f *Fit) Bytes() (free, used uint64) { return f.free + f.held, f.used }

// Lowest is the least that was free at any time since TurnLowest was called, without what was
// cut out or added since.
func (f *Fit) Lowest() uint64 { return f.lowest }

// TurnLowest begins a new stretch of time for Lowest.
func (f *Fit) TurnLowest() { f.lowest = f.free }

// Largest is the size of the largest free range: what Take can return.
func (f *Fit) Largest() uint64 { return f.ranges.largest() }

// All calls yield for each block and each free range, in the order of their addresses,
// until that returns false. A block's mark is zero. The fit must not change meanwhile.
func (f *Fit) All(yield func(ptr, bytes uint64, used bool, mark uint64) bool) {
	var begins []uint64
	for at, e := range f.edges {
		if e.above != nil {
			begins = append(begins, at)
		}
	}
	slices.Sort(begins)
	for _, at := range begins {
		for r := f.edges[at].above; r.above != nil; r = r.above {
			if !yield(r.ptr, r.bytes, !r.free, r.mark) {
				return
			}
		}
	}
}

// release makes a record free, and one with its free neighbours.
func (f *Fit) release(r *record) {
	if hi := r.above; hi.free {
		f.ranges.remove(hi)
		f.merge(r, hi)
	}
	if lo := r.below; lo.free {
		f.ranges.remove(lo)
		f.merge(lo, r)
		r = lo
	}
	f.ranges.insert(r)
}

// merge makes one record of two neighbours.
func (f *Fit) merge(lo, hi *record) {
	lo.bytes += hi.bytes
	lo.mark = max(lo.mark, hi.mark)
	join(lo, hi.above)
	f.records.put(hi)
}

// carve takes the first so many bytes of a free range out of it.
func (f *Fit) carve(r *record, bytes uint64) *record {
	f.ranges.remove(r)
	if r.bytes > bytes {
		rest := f.records.get(r.ptr+bytes, r.bytes-bytes)
		rest.mark = r.mark
		r.bytes = bytes
		join(rest, r.above)
		join(r, rest)
		f.ranges.insert(rest)
	}
	return r
}

// reach is the neighbour at an address of a run that comes to be there or to grow: what
// another run has there, or an edge.
func (f *Fit) reach(at uint64) *record {
	e := f.edges[at]
	if e == nil {
		e = f.records.get(at, 0)
		f.edges[at] = e
		return e
	}
	neighbour := e.below
	if neighbour == nil {
		neighbour = e.above
	}
	f.drop(e)
	return neighbour
}

// detach takes a record out of its run, which ends below it, and begins above it.
func (f *Fit) detach(r *record) {
	if lo := r.below; lo.edge() {
		f.drop(lo)
	} else {
		join(lo, f.reach(r.ptr))
	}
	if hi := r.above; hi.edge() {
		f.drop(hi)
	} else {
		join(f.reach(r.end()), hi)
	}
	f.records.put(r)
}

func (f *Fit) drop(edge *record) {
	delete(f.edges, edge.ptr)
	f.records.put(edge)
}

// smallest is the smallest range that has n bytes of whole pages and whose mark is covered.
func (f *Fit) smallest(n uint64, covered func(mark uint64) bool) (best *record) {
	f.ranges.each(n, func(r *record) bool {
		if best != nil && classOf(r.bytes) != classOf(best.bytes) {
			return false
		}
		from, to := f.within(r)
		if from < to && to-from >= n && (best == nil || r.bytes < best.bytes) && (covered == nil || covered(r.mark)) {
			best = r
		}
		return true
	})
	return best
}

// within is the wholly free pages of a range: none, unless from is less than to.
func (f *Fit) within(r *record) (from, to uint64) {
	return roundUp(r.ptr, f.page), r.end() / f.page * f.page
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }
