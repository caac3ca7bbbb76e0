package sim

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// An access that begins in one block and goes on over its bound is out of that block's bounds,
// whatever lies behind: a live block, a freed one, the slack of the allocator or nothing. So the
// oracle asks whose pointer an access was made from, and not only where it landed. What tells is,
// in this order: the pointer of a freed block that the launch was given, if the range begins there;
// the block that its launch declares and that the range runs into or touches, if the
// launch declares nothing of where the range begins; the block in which the range begins; the
// pointers among a launch's arguments; the beginning of a freed block, which is a pointer of that
// block's own; the live block that the range runs into or touches. Where none of these says
// anything, the access is judged by what lived there last.

// attribute sets in the parts of a range, all in h, the block whose bound was
// crossed on the way there. h is locked.
func (h *heap) attribute(parts []use, r Range, args []driver.Arg, launches []*declaration, number uint64) {
	if len(parts) == 0 || parts[0].isStale(r, args) {
		return
	}
	of := h.derived(parts, r, args, launches, number)
	if of == nil && len(parts) == 1 && parts[0].blk != nil {
		return
	}
	if of == nil {
		of = h.crossed(parts, r, args, number)
	}
	if of == nil {
		return
	}
	for i := range parts {
		if !parts[i].belongs(of) {
			parts[i].over = of
		}
	}
}

// derived is the block from whose pointer a range was reached by the word of its launch. The launch
// declares that block and nothing of where the range begins. The range runs into the block, ends
// where it begins, or begins where it ends. derived is nil if that is not known, if the range
// begins in a block by that block's own pointer, and in one that no launch need declare.
func (h *heap) derived(parts []use, r Range, args []driver.Arg, launches []*declaration, number uint64) *block {
	if len(launches) == 0 {
		return nil
	}
	for i := range parts {
		switch b := parts[i].blk; {
		case b == nil || !declaresPart(launches, b):
			if b != nil && (b.low() == r.Ptr || !b.told.Load()) {
				return nil
			}
		case i == 0:
			return nil
		default:
			return b
		}
	}
	end := r.Ptr + r.Bytes
	behind, before := h.meantAt(r.Ptr-1, number), h.meantAt(end, number)
	switch {
	case behind != nil && behind.high() == r.Ptr && declaresPart(launches, behind) && !isArgument(args, r.Ptr):
		return behind
	case before != nil && before.low() == end && declaresPart(launches, before):
		return before
	}
	return nil
}

// isStale reports whether a range, of which u is the first part, was reached by the pointer of a
// freed block. It begins where that block did, and the pointer is an argument of the launch. A copy
// or fill, which has no arguments, is of that block and of nothing else.
func (u *use) isStale(r Range, args []driver.Arg) bool {
	if u.blk != nil || u.gone == nil || u.gone.low() != r.Ptr {
		return false
	}
	return isArgument(args, r.Ptr) || len(args) == 0 && r.Ptr+r.Bytes == u.gone.high()
}

// belongs reports whether the block that is or was in the part is one memory
// with b.
func (u *use) belongs(b *block) bool {
	if u.blk == nil {
		return u.gone.joins(b)
	}
	return u.blk.joins(b)
}

// crossed is the block from whose pointer a range was reached that is not all
// within one live block; nil if that is not known.
func (h *heap) crossed(parts []use, r Range, args []driver.Arg, number uint64) *block {
	first := &parts[0]
	if first.blk != nil {
		return first.blk
	}
	if of, direct := h.pointed(args, first, number); of != nil && !direct {
		return of
	}
	gone := first.gone
	if gone != nil && r.Ptr == gone.low() {
		return nil
	}
	for i := range parts {
		if b := parts[i].blk; b != nil && (gone == nil || r.Ptr+r.Bytes > gone.high()) {
			return b
		}
	}
	return h.beside(r, number)
}

// pointed is the live block nearest to a dead part that one of the arguments
// points into. direct is set if an argument points to the dead part itself, or
// into the block that was there.
func (h *heap) pointed(args []driver.Arg, dead *use, number uint64) (nearest *block, direct bool) {
	for _, a := range args {
		switch at := a.Bits; {
		case a.Size != 8:
		case dead.holds(at):
			direct = true
		default:
			nearest = nearer(dead.low, nearest, h.meantAt(at, number))
		}
	}
	return nearest, direct
}

// holds reports whether an address lies in the part, or in the freed block that
// the part is of.
func (u *use) holds(at uint64) bool {
	return at >= u.low && at < u.high || u.gone != nil && at >= u.gone.low() && at < u.gone.high()
}

// nearer is the one of two blocks, which may be nil, that is nearer to an
// address in neither of them.
func nearer(at uint64, a, b *block) *block {
	if a == nil || b != nil && b.distance(at) < a.distance(at) {
		return b
	}
	return a
}

// distance is how far an address lies outside the block, 0 within.
func (b *block) distance(at uint64) uint64 {
	switch {
	case at < b.low():
		return b.low() - at
	case at >= b.high():
		return at - b.high()
	}
	return 0
}

// beside is the live block in whose slack a range begins, or that it touches.
func (h *heap) beside(r Range, number uint64) *block {
	if n := h.nodeAt(r.Ptr); n != nil {
		if b := n.slackOf(r.Ptr); b != nil {
			return b
		}
	}
	if b := h.meantAt(r.Ptr-1, number); b != nil {
		return b
	}
	if b := h.meantAt(r.Ptr+r.Bytes, number); b != nil && b.low() == r.Ptr+r.Bytes {
		return b
	}
	return nil
}

// attributeLate is attribute for what a launch touched without having declared
// it: where no argument points and nothing is declared, the nearest block that
// the launch was given was overrun. Of a launch that finds addresses in memory
// nothing can be said.
func (d *Device) attributeLate(o *op, parts []use) {
	if o.kernel.Indirect {
		return
	}
	var before *block
	for i := range parts {
		u, last := &parts[i], &parts[len(parts)-1]
		of, direct := d.given(o, u)
		switch {
		case direct || of == nil || u.belongs(of):
			of = nil
		case u.blk != nil && u.low != of.high() && before != of && (last.high != of.low() || declaresPart(o.launches, u.blk)):
			of = nil // another live block, and not reached over the bound: a matter of what was declared
		}
		u.over, before = of, of
	}
}

// given is the block nearest to a part that the launch was given: as an argument,
// or by what it declared. direct is set if it was given the part itself.
func (d *Device) given(o *op, u *use) (nearest *block, direct bool) {
	consider := func(b *block) {
		if b != nil && b == u.blk {
			direct = true
		}
		nearest = nearer(u.low, nearest, b)
	}
	for _, a := range o.exec.args {
		if a.Size != 8 {
			continue
		}
		if u.holds(a.Bits) {
			direct = true
		}
		for _, at := range d.resolveLate(o, Range{Ptr: a.Bits, Bytes: 1}) {
			consider(at.blk)
		}
	}
	for i := range o.uses {
		if o.uses[i].over == nil {
			consider(o.uses[i].blk)
		}
	}
	return nearest, direct
}

// lawful reports whether a launch declared all of [from, to) for what it did
// there from a pointer of the block's own, though it also declared it as part of
// a range that crosses another's bound.
func (o *op) lawful(from, to uint64, touched Range) bool {
	for i := range o.uses {
		u := &o.uses[i]
		if u.over == nil && u.blk != nil && u.access&touched.Access == touched.Access && u.low <= from && to <= u.high {
			return true
		}
	}
	return false
}

// home is the block in which a touch begins that is declared there: from a pointer of the block's
// own. It is nil if that is not known, and where addresses come out of memory.
func (o *op) home(ptr uint64) *block {
	if o.kernel != nil && (o.kernel.Indirect || o.kernel.guard) {
		return nil
	}
	for i := range o.uses {
		if u := &o.uses[i]; u.over == nil && u.blk != nil && u.low <= ptr && ptr < u.high {
			return u.blk
		}
	}
	return nil
}

// overruns reports whether a touch that begins in a block goes on over its end. If the next block
// begins there, and its pointer is no argument, the touch may be two that were joined.
func (o *op) overruns(home *block, touched Range) bool {
	end := touched.Ptr + touched.Bytes
	switch bound := home.high(); {
	case end <= bound || home.in != nil && !home.told.Load():
		return false
	default:
		return o.exec.isArgument(bound) || !o.lawful(bound, end, touched)
	}
}

// isAnothers reports whether a use is declared for another access than this one, which another
// use declares.
func (o *op) isAnothers(u *use, from, to uint64, access core.Access) bool {
	if u.access&access != 0 {
		return false
	}
	low, high := firstGap(o.uses, from, to, access)
	return low >= high
}

// crossedTo is the block from whose pointer an operation reached for a range that
// is not all mapped, nil if that is not known.
func (d *Device) crossedTo(o *op, r Range) *block {
	for i := range o.uses {
		if u := &o.uses[i]; u.over != nil && u.low < r.Ptr+r.Bytes && r.Ptr < u.high {
			return u.over
		}
	}
	h := d.heapAt(r)
	h.Lock()
	defer h.Unlock()
	from, to := h.firstDead(r)
	dead := use{low: from, high: to, gone: h.history.last(from, anyBlock)}
	of := h.blockAt(r.Ptr)
	if of == nil && o.kernel != nil && !o.kernel.Indirect {
		var direct bool
		if of, direct = h.pointed(o.exec.args, &dead, wholly); direct {
			return nil
		}
	}
	if of == nil || dead.belongs(of) {
		return nil
	}
	return of
}
