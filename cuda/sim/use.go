package sim

import (
	"math"

	"github.com/fencepost-gpu/fencepost/core"
)

// Range is a range of addresses and what is done with it.
type Range struct {
	Ptr, Bytes uint64
	Access     core.Access
}

// Reads declares that n bytes at ptr are read.
func Reads(ptr, n uint64) Range { return Range{ptr, n, core.Read} }

// Writes declares that n bytes at ptr are written.
func Writes(ptr, n uint64) Range { return Range{ptr, n, core.Write} }

// ReadWrites declares that n bytes at ptr are read and written.
func ReadWrites(ptr, n uint64) Range { return Range{ptr, n, core.ReadWrite} }

// use is a range of an operation within one block, as the address was meant
// when the operation was enqueued.
type use struct {
	low, high uint64
	access    core.Access
	blk       *block // nil: no block lived there
	gone      *block // the block that had lived there, if remembered
	over      *block // the block whose bound was crossed to come here, nil for none
}

func (d *Device) heapOf(ptr uint64) *heap {
	if ptr >= mapBase {
		if h := d.mapped.Load(); h != nil {
			return h
		}
	}
	if ptr >= d.memory.arena.base {
		return d.memory
	}
	return d.host
}

// heapAt is the heap of a range. One that begins below all addresses of a heap, and ends in it or
// where it begins, was made from a pointer of that heap.
func (d *Device) heapAt(r Range) *heap {
	h := d.heapOf(r.Ptr)
	if !h.arena.contains(r.Ptr, 1) {
		if at := d.heapOf(r.Ptr + r.Bytes); at.arena.contains(r.Ptr+r.Bytes, 1) {
			return at
		}
	}
	return h
}

func (d *Device) isMapped(ptr, n uint64) bool { return d.heapOf(ptr).arena.isMapped(ptr, n) }

// reach is the memory at [ptr, ptr+n) to be touched; ok is false if not all of it
// is backed.
func (d *Device) reach(ptr, n uint64) (b []byte, ok bool) { return d.heapOf(ptr).arena.reach(ptr, n) }

// resolve appends the blocks that a range of o means now, which is enqueued on s. It takes a heap's
// lock.
func (d *Device) resolve(s *stream, o *op, uses []use, r Range) []use {
	known, number, launches := len(uses), d.pushed+1, s.launches
	if o.isGuards() {
		number, launches = wholly, nil
	}
	h := d.heapAt(r)
	h.Lock()
	defer h.Unlock()
	low, high := r.Ptr, min(r.Ptr+r.Bytes, h.arena.limit)
	for low < high {
		u := use{low: low, access: r.Access}
		u.blk, u.high = h.meant(low, number)
		u.high = min(u.high, high)
		if u.blk == nil {
			u.gone = h.goneAt(low, number)
		}
		uses = append(uses, u)
		low = u.high
	}
	h.attribute(uses[known:], r, o.exec.args, launches, number)
	return uses
}

// resolveLate finds the blocks that an operation means by a range of which
// nothing was known when it was enqueued. A block may have been freed since,
// and its address be taken again: clocks decide.
func (d *Device) resolveLate(o *op, r Range) (uses []use) {
	h, number := d.heapAt(r), o.number
	if o.isGuards() {
		number = wholly
	}
	h.Lock()
	defer h.Unlock()
	for low, high := r.Ptr, r.Ptr+r.Bytes; low < high; {
		u := use{low: low, access: r.Access}
		u.blk, u.high = h.meant(low, number)
		if u.blk == nil || !u.blk.aliveFor(o) {
			fits := func(b *block) bool {
				from, to := b.bounds(number)
				return low >= from && low < to && b.aliveFor(o)
			}
			if b := h.history.last(low, fits); b != nil {
				_, to := b.bounds(number)
				u.blk, u.high = b, min(u.high, to)
			} else if u.blk == nil {
				u.gone = h.goneAt(low, number)
			}
		}
		u.high = min(u.high, high)
		uses = append(uses, u)
		low = u.high
	}
	return uses
}

// meant returns the live block that an operation of this number means by addr (nil if none) and the
// address up to which that answer holds.
func (h *heap) meant(addr, number uint64) (*block, uint64) {
	n := h.nodeAt(addr)
	switch {
	case n == nil && addr < h.arena.base:
		return nil, h.arena.base
	case n == nil && addr >= h.arena.limit:
		return nil, math.MaxUint64
	case n == nil:
		return nil, roundUp(addr+1, Granule)
	case n.isCarved():
		return n.meant(addr, number)
	case n.free || n.blk.in == nil && n.blk.freed:
		return nil, n.end()
	}
	return n.blk.meant(addr, number, n.end())
}

// meant is heap.meant where no other block lies up to end.
func (b *block) meant(addr, number, end uint64) (*block, uint64) {
	switch low, high := b.bounds(number); {
	case addr < low:
		return nil, low
	case addr >= high:
		return nil, end
	default:
		return b, high
	}
}

// firstDead is the first part of a range where no block lives; it is empty, at the range's end, if
// there is none.
func (h *heap) firstDead(r Range) (low, high uint64) {
	low = h.skip(r.Ptr, r.Ptr+r.Bytes, true)
	return low, h.skip(low, r.Ptr+r.Bytes, false)
}

// skip is the first address from at on where no block lives, or where one does, and end if none is.
func (h *heap) skip(at, end uint64, live bool) uint64 {
	for at < end {
		b, next := h.meant(at, wholly)
		if (b != nil) != live {
			return at
		}
		at = next
	}
	return end
}

// judge hands what an operation really touched to the oracle.
func (d *Device) judge(o *op, touched Range) {
	home := o.home(touched.Ptr)
	if home != nil && o.overruns(home, touched) {
		d.report(OutOfBounds, home, o.accessOf(home.high(), touched.Ptr+touched.Bytes).party(touched.Access), Party{})
		touched.Bytes = home.high() - touched.Ptr
	}
	d.judgeUses(o, o.uses, touched, func(u *use, from, to uint64) bool {
		return home != nil || o.lawful(from, to, touched) || o.isAnothers(u, from, to, touched.Access)
	})
	if o.kind == opLaunch {
		d.judgeDeclared(o, touched)
	}
}

// judgeUses judges what a touch has of uses. Parts side by side that were reached over one block's
// bound are one overrun, unless they are excused.
func (d *Device) judgeUses(o *op, uses []use, touched Range, excused func(u *use, from, to uint64) bool) {
	var over use
	for i := range uses {
		u := &uses[i]
		from, to := max(touched.Ptr, u.low), min(touched.Ptr+touched.Bytes, u.high)
		switch {
		case from >= to || u.over != nil && excused(u, from, to):
		case u.over == nil:
			d.judgeUse(o, u, from, to, touched.Access)
		case u.over == over.over && from == over.high:
			over.high = to
		default:
			d.judgeOver(o, over, touched.Access)
			over = use{low: from, high: to, over: u.over}
		}
	}
	d.judgeOver(o, over, touched.Access)
}

// judgeOver reports an overrun, and no access of the blocks that it hit.
func (d *Device) judgeOver(o *op, u use, access core.Access) {
	if u.over != nil {
		d.report(OutOfBounds, u.over, o.accessOf(u.low, u.high).party(access), Party{})
	}
}

// judgeUse judges the part [from, to) of a touch that lies in one use, and was
// reached over no bound.
func (d *Device) judgeUse(o *op, u *use, from, to uint64, access core.Access) {
	a := o.accessOf(from, to)
	switch {
	case u.blk != nil:
		low, high, as := o.stray(u.blk, from, to, access)
		if low < high && d.strays.isRecorded(o, u.blk) {
			high = low
		}
		a.declared = len(o.launches) > 0 && low >= high
		how, high := o.misdeclared(u.blk, low, high)
		if how != "" && !d.strays.mayBeRecorded() {
			a.how = how
		}
		d.touch(u.blk, o.now, a, access)
		d.judgeLaunch(o, u.blk, low, high, as, how)
	case u.gone != nil:
		d.report(UseAfterFree, u.gone, a.party(access), u.gone.lockedFreeParty())
	default:
		d.report(OutOfBounds, nil, a.party(access), Party{})
	}
}

// judgeDeclared reports touched bytes that the launch did not declare so, and
// judges those that it did not declare at all by what it can have meant.
func (d *Device) judgeDeclared(o *op, touched Range) {
	low, high := touched.Ptr, touched.Ptr+touched.Bytes
	for from, to := firstGap(o.uses, low, high, core.ReadWrite); from < to; from, to = firstGap(o.uses, to, high, core.ReadWrite) {
		parts := d.resolveLate(o, Range{from, to - from, touched.Access})
		d.attributeLate(o, parts)
		d.judgeUses(o, parts, touched, func(*use, uint64, uint64) bool { return false })
	}
	for _, kind := range [...]core.Access{core.Read, core.Write} {
		if touched.Access&kind == 0 || o.kernel.Indirect {
			continue
		}
		if from, to := firstGap(o.uses, low, high, kind); from < to {
			d.judgeUndeclared(o, from, to, kind)
		}
	}
}

// judgeUndeclared reports the first block in [from, to) that was not declared so.
// What is in no block, or out of the bounds of what was declared, is told as that.
func (d *Device) judgeUndeclared(o *op, from, to uint64, kind core.Access) {
	parts := d.resolveLate(o, Range{from, to - from, kind})
	d.attributeLate(o, parts)
	for i := range parts {
		u := &parts[i]
		if u.blk == nil || u.over != nil {
			continue
		}
		if low, high, _ := o.stray(u.blk, u.low, u.high, kind); low >= high { // or else that the launch did not declare it is told
			d.fileUndeclared(o.undeclaredAccess(u.blk, o.accessOf(u.low, u.high).party(kind), "not what Declare of the kernel's twin lists"), u.blk)
		}
		return
	}
}

// firstGap returns the first part of [low, high) that no use covers with any
// of the accesses in kinds; it is empty if there is none.
func firstGap(uses []use, low, high uint64, kinds core.Access) (from, to uint64) {
	for covered := true; covered; {
		covered = false
		for i := range uses {
			if u := &uses[i]; u.access&kinds != 0 && u.low <= low && low < u.high {
				low, covered = u.high, true
			}
		}
	}
	for i := range uses {
		if u := &uses[i]; u.access&kinds != 0 && u.low > low {
			high = min(high, u.low)
		}
	}
	return low, high
}

// accessOf is the oracle's entry for a part of what an operation touched.
func (o *op) accessOf(low, high uint64) access {
	return access{low: low, high: high, op: o.name, stream: o.stream, own: o.isGuards(), work: o.work, slot: o.now.slot,
		seq: o.now.seq}
}

// isGuards reports whether the operation is the debug guard's.
func (o *op) isGuards() bool { return o.kernel != nil && o.kernel.guard }
