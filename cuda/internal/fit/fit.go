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
// # Small blocks
//
// A block of at most a 32nd of a page is small. Small blocks lie on pages of their own, so that a
// few of them do not keep many pages from larger blocks. In an arena of four pages or fewer they
// lie anywhere. Other blocks may lie there, too, if there is no other room: they keep no further
// page. A page for small blocks of which all is free becomes a page like the others when one is
// looked for.
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
	page   uint64
	free   uint64
	used   uint64
	held   uint64
	lowest uint64 // see TurnLowest
	// ranges are the free ranges by kind.
	ranges [kinds]classes
	// squeezed: small blocks may lie beside others.
	squeezed bool
	blocks   table
	edges    map[uint64]*record // where runs begin and end
	records  store
	holds    []hold
}

// kind says what the pages are for that a range lies on.
type kind uint8

const (
	mixed kind = iota
	forSmall
	kinds
)

// smallShare is how many small blocks a page has room for at least. An arena of fewer than fewPages
// has none of their own for them: on each of many streams a page more is dear.
const (
	smallShare = 32
	fewPages   = 5
)

// IsSmall reports whether a block of so many bytes is small.
func (f *Fit) IsSmall(bytes uint64) bool { return bytes <= f.page/smallShare }

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
	f.squeezed = false
	f.release(r)
}

// Take takes a block of so many bytes, rounded up to [core.DefaultAlign], from a free range that is
// among the smallest of a kind with so many. It answers false, and changes nothing, only if Has
// does.
func (f *Fit) Take(bytes uint64) (ptr uint64, ok bool) {
	if bytes > f.free {
		return 0, false
	}
	bytes = roundUp(max(bytes, 1), unit)
	r := f.find(bytes)
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

// Has reports whether Take would take a block of so many bytes. A range has so many, or, for a
// small block, a page is free, or a range as long as a page: that page is one for small blocks
// then. After Squeeze the ranges beside other blocks count for small blocks.
func (f *Fit) Has(bytes uint64) bool {
	if bytes > f.free {
		return false
	}
	return f.find(roundUp(max(bytes, 1), unit)) != nil
}

// Squeeze lets small blocks lie beside others, until pages are added.
func (f *Fit) Squeeze() { f.squeezed = true }

// HasPiece reports whether there is a range of so many bytes beside blocks that are not small.
func (f *Fit) HasPiece(bytes uint64) bool { return f.ranges[mixed].largest() >= bytes }

// find is a range for a block of so many bytes, nil if there is none.
func (f *Fit) find(bytes uint64) *record {
	if f.IsSmall(bytes) && f.free+f.used >= fewPages*f.page {
		return f.findSmall(bytes)
	}
	if r := f.ranges[mixed].find(bytes); r != nil {
		return r
	}
	if f.gather() {
		if r := f.ranges[mixed].find(bytes); r != nil {
			return r
		}
	}
	return f.ranges[forSmall].find(bytes)
}

// findSmall is find for a small block of an arena that has pages for small blocks.
func (f *Fit) findSmall(bytes uint64) *record {
	if r := f.ranges[forSmall].find(bytes); r != nil {
		return r
	}
	if r := f.smallest(f.page, nil); r != nil {
		return f.turn(r, f.outermost(r, f.page), f.page, forSmall)
	}
	if f.squeezed {
		return f.ranges[mixed].find(bytes)
	}
	return f.ranges[mixed].find(f.page)
}

// turn makes pages of a free range pages for another kind of blocks, and returns the range that has
// them then.
func (f *Fit) turn(r *record, ptr, n uint64, to kind) *record {
	r = f.part(r, ptr, n)
	r.kind = to
	return f.release(r)
}

// gather makes the free pages for small blocks pages like the others. It reports whether there were
// some.
func (f *Fit) gather() (some bool) {
	for {
		var r *record
		var from, to uint64
		f.ranges[forSmall].each(f.page, func(has *record) bool {
			if from, to = f.within(has); from < to {
				r = has
			}
			return r == nil
		})
		if r == nil {
			return some
		}
		f.turn(r, from, to-from, mixed)
		some = true
	}
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
	f.gather()
	r := f.smallest(n, covered)
	if r == nil {
		return 0, 0, 0, false
	}
	ptr, mark = f.outermost(r, n), r.mark
	f.cut(r, ptr, n)
	return ptr, n, mark, true
}

// outermost is where to cut so many bytes of whole pages out of a range that has them.
func (f *Fit) outermost(r *record, n uint64) uint64 {
	from, to := f.within(r)
	if from-r.ptr < r.end()-to { // the part that is left alone should be the smaller one
		return from
	}
	return to - n
}

// CutAt takes some pages out of the fit, if they are free, of one range, and its mark is
// covered. If covered is nil, all marks are. It takes a time that grows with the number of ranges that
// have as many pages.
func (f *Fit) CutAt(ptr, n uint64, covered func(mark uint64) bool) (ok bool) {
	f.gather()
	f.ranges[mixed].each(n, func(r *record) bool {
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
	f.detach(f.part(r, ptr, n))
	f.free -= n
	f.lowest -= min(f.lowest, n)
}

// part takes a part of a free range out of the lists.
func (f *Fit) part(r *record, ptr, n uint64) *record {
	if below := ptr - r.ptr; below > 0 {
		rest := f.carve(r, below)
		r = rest.above
		f.list(rest).insert(rest)
	}
	return f.carve(r, n)
}

// list is the free ranges of a record's kind.
func (f *Fit) list(r *record) *classes { return &f.ranges[r.kind] }

// Beside is how many bytes are free below an address at which memory of the fit ends, and above one
// at which some begins; no bytes at others, nor on pages for small blocks.
func (f *Fit) Beside(at uint64) (below, above uint64) {
	f.gather()
	e := f.edges[at]
	switch {
	case e == nil:
	case e.below != nil && e.below.free && e.below.kind == mixed:
		below = e.below.bytes
	case e.above != nil && e.above.free && e.above.kind == mixed:
		above = e.above.bytes
	}
	return below, above
}

// Pages calls yield for the wholly free pages of each range that has some, in no order,
// until that returns false. The fit must not change meanwhile.
func (f *Fit) Pages(yield func(ptr, n, mark uint64) bool) {
	f.gather()
	f.ranges[mixed].each(f.page, func(r *record) bool {
		from, to := f.within(r)
		return from >= to || yield(from, to-from, r.mark)
	})
}

// Mark gives all that is free or held another mark.
func (f *Fit) Mark(mark uint64) {
	for _, h := range f.holds {
		h.mark = mark
	}
	for i := range f.ranges {
		f.ranges[i].each(unit, func(r *record) bool {
			r.mark = mark
			return true
		})
	}
}

// Bytes is how much memory is free or held, and how much is taken.
func (f *Fit) Bytes() (free, used uint64) { return f.free + f.held, f.used }

// Lowest is the least that was free at any time since TurnLowest was called, without what was
// cut out or added since.
func (f *Fit) Lowest() uint64 { return f.lowest }

// TurnLowest begins a new stretch of time for Lowest.
func (f *Fit) TurnLowest() { f.lowest = f.free }

// Largest is the size of the largest free range.
func (f *Fit) Largest() uint64 {
	f.gather()
	return max(f.ranges[mixed].largest(), f.ranges[forSmall].largest())
}

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

// release makes a record free, and one with its free neighbours of the same kind. It returns the
// free range.
func (f *Fit) release(r *record) *record {
	if hi := r.above; hi.free && hi.kind == r.kind {
		f.list(hi).remove(hi)
		f.merge(r, hi)
	}
	if lo := r.below; lo.free && lo.kind == r.kind {
		f.list(lo).remove(lo)
		f.merge(lo, r)
		r = lo
	}
	f.list(r).insert(r)
	return r
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
	f.list(r).remove(r)
	if r.bytes > bytes {
		rest := f.records.get(r.ptr+bytes, r.bytes-bytes)
		rest.mark, rest.kind = r.mark, r.kind
		r.bytes = bytes
		join(rest, r.above)
		join(r, rest)
		f.list(rest).insert(rest)
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
	f.ranges[mixed].each(n, func(r *record) bool {
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
