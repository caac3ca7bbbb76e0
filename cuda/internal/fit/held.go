package fit

import "slices"

// A held range is memory that was freed and whose next use must come after more than its mark: work
// of other streams that the arena's stream is not ordered after. It merges with nothing, Take does
// not see it, and it is no more free in Pages, Cut and Lowest, until it is settled, because its arena's
// stream comes after that work, or cut out for a stream that will.

// Behind is what a held range is behind. The fit has a reference for each range.
type Behind interface{ Retain() }

type hold struct {
	*record
	behind Behind
}

// Held is a held range. Below and Above are how many bytes beside it are free that merge with it
// when it is held no more.
type Held struct {
	Ptr, Bytes   uint64
	Below, Above uint64
	Behind       Behind
	// IsSmall: it lies on pages for small blocks.
	IsSmall bool
}

func (h hold) described() Held {
	d := Held{Ptr: h.ptr, Bytes: h.bytes, Behind: h.behind, IsSmall: h.kind == forSmall}
	if h.below.free && h.below.kind == h.kind {
		d.Below = h.below.bytes
	}
	if h.above.free && h.above.kind == h.kind {
		d.Above = h.above.bytes
	}
	return d
}

// Hold makes the block at ptr a held range, with the caller's reference. It answers false for what
// Give would.
func (f *Fit) Hold(ptr, mark uint64, behind Behind) bool {
	r := f.blocks.remove(ptr)
	if r != nil {
		f.used -= r.bytes
		f.hold(r, mark, behind)
	}
	return r != nil
}

func (f *Fit) hold(r *record, mark uint64, behind Behind) {
	r.mark, r.held = mark, true
	f.held += r.bytes
	f.holds = append(f.holds, hold{r, behind})
}

// AddHeld is Add for memory that is behind something.
func (f *Fit) AddHeld(ptr, bytes, mark uint64, behind Behind) {
	r := f.records.get(ptr, bytes)
	join(f.reach(ptr), r)
	join(r, f.reach(ptr+bytes))
	f.hold(r, mark, behind)
}

// Held calls yield for each held range, in no order, until that returns false. The fit must not
// change meanwhile.
func (f *Fit) Held(yield func(Held) bool) {
	for _, h := range f.holds {
		if !yield(h.described()) {
			return
		}
	}
}

// Settle makes the held ranges free that ready yields true for, with the newer of mark and their
// own, and returns the references that it gives up.
func (f *Fit) Settle(mark uint64, ready func(Held) bool) (gone []Behind) {
	f.holds = slices.DeleteFunc(f.holds, func(h hold) bool {
		if !ready(h.described()) {
			return false
		}
		gone = append(gone, h.behind)
		h.mark, h.held = max(h.mark, mark), false
		f.held -= h.bytes
		f.free += h.bytes
		f.release(h.record)
		return true
	})
	return gone
}

// Rows is Pages with those of held ranges: it calls yield for the wholly free or held pages of each
// row of ranges, and says whether one of them is held.
func (f *Fit) Rows(yield func(ptr, n, mark uint64, held bool) bool) {
	more := true
	f.gather()
	f.ranges[mixed].each(f.page, func(r *record) bool {
		if from, to := f.within(r); from < to && !r.below.isHeld(mixed) && !r.above.isHeld(mixed) {
			more = yield(from, to-from, r.mark, false)
		}
		return more
	})
	for _, h := range f.holds {
		if row, first := f.row(h.record); first {
			if from, to := f.within(&row); more && from < to {
				more = yield(from, to-from, row.mark, true)
			}
		}
	}
}

// SmallRows calls yield for the wholly free or held pages for small blocks of each row of ranges
// that has a held one, until that returns false. They are like other pages when they are held no
// more.
func (f *Fit) SmallRows(yield func(ptr, n uint64) bool) {
	for _, h := range f.holds {
		if row, first := f.row(h.record); first && h.kind == forSmall {
			if from, to := f.within(&row); from < to && !yield(from, to-from) {
				return
			}
		}
	}
}

// row is a held range with the free and held ones of its kind beside it, and whether it is the
// first held one of them.
func (f *Fit) row(of *record) (row record, first bool) {
	row = *of
	if lo := row.below; lo.free && lo.kind == row.kind {
		row.ptr, row.bytes, row.mark, row.below = lo.ptr, row.bytes+lo.bytes, max(row.mark, lo.mark), lo.below
	}
	if row.below.isHeld(row.kind) {
		return row, false
	}
	for hi := row.above; hi.open() && hi.kind == row.kind; hi = hi.above {
		row.bytes, row.mark = row.bytes+hi.bytes, max(row.mark, hi.mark)
	}
	return row, true
}

// CutRow takes some pages out of the fit if all of them are free or held, and returns the newest of
// their marks and the references of what they were behind.
func (f *Fit) CutRow(ptr, n uint64) (behind []Behind, mark uint64, ok bool) {
	end := ptr + n
	cut := func() bool {
		return f.CutAt(ptr, n, func(of uint64) bool {
			mark = of
			return true
		})
	}
	i := slices.IndexFunc(f.holds, func(h hold) bool { return h.ptr < end && ptr < h.end() })
	if i < 0 {
		ok = cut()
		return nil, mark, ok
	}
	lo, hi := f.holds[i].record, f.holds[i].record
	for lo.ptr > ptr && lo.below.open() && lo.below.kind == lo.kind {
		lo = lo.below
	}
	for hi.end() < end && hi.above.open() && hi.above.kind == hi.kind {
		hi = hi.above
	}
	if lo.ptr > ptr || hi.end() < end {
		return nil, 0, false
	}
	f.split(hi, end)
	f.split(lo, ptr)
	behind = f.Settle(0, func(h Held) bool { return ptr <= h.Ptr && h.Ptr+h.Bytes <= end })
	ok = cut()
	return behind, mark, ok
}

// split makes two of a held range that an address lies within.
func (f *Fit) split(r *record, at uint64) {
	if !r.held || at <= r.ptr || r.end() <= at {
		return
	}
	behind := f.holds[slices.IndexFunc(f.holds, func(h hold) bool { return h.record == r })].behind
	behind.Retain()
	rest := f.records.get(at, r.end()-at)
	rest.kind = r.kind
	f.held -= rest.bytes
	r.bytes = at - r.ptr
	join(rest, r.above)
	join(r, rest)
	f.hold(rest, r.mark, behind)
}

// Holds reports whether there are held ranges.
func (f *Fit) Holds() bool { return len(f.holds) > 0 }
