package program

import "cmp"

// Orbit is how many programs, this one included, come of it by another order of the
// allocations that it begins with: those are the same but for the names of blocks and
// streams, where an allocation says nothing of an address. first reports whether it
// is the first of them, which may stand for all.
func (p Program) Orbit() (size int, first bool) {
	n := 0
	for n < len(p) && p[n].Kind == Alloc {
		n++
	}
	var order [MaxBlocks]uint8
	for i := range n {
		order[i] = uint8(i)
	}
	orders, same, first := 0, 0, true
	permute(order[:n], 0, func() bool {
		orders++
		switch p.compareReordered(order[:n]) {
		case 0:
			same++
		case 1:
			first = false
		}
		return first
	})
	if !first {
		return 0, false
	}
	return orders / same, true
}

// permute calls yield with every order of what follows from on, until it returns
// false.
func permute(order []uint8, from int, yield func() bool) bool {
	if from >= len(order)-1 {
		return yield()
	}
	for i := from; i < len(order); i++ {
		order[from], order[i] = order[i], order[from]
		more := permute(order, from+1, yield)
		order[from], order[i] = order[i], order[from]
		if !more {
			return false
		}
	}
	return true
}

// compareReordered compares the program, as text would be, with itself when it begins
// with the allocations in another order, and names blocks and streams anew.
func (p Program) compareReordered(order []uint8) int {
	var block, stream [MaxBlocks]uint8 // by their old names
	for i := range block {
		block[i], stream[i] = uint8(i), unnamed
	}
	for i, old := range order {
		block[old] = uint8(i)
	}
	used := uint8(0)
	for i, o := range p {
		if i < len(order) {
			o.Stream = p[order[i]].Stream
		} else {
			o.Reads, o.Writes = renamed(o.Reads, &block), renamed(o.Writes, &block)
			if o.Kind == Free || o.IsRecord() {
				o.Block = block[o.Block]
			}
		}
		if o.Kind != Free {
			if stream[o.Stream] == unnamed {
				stream[o.Stream] = used
				used++
			}
			o.Stream = stream[o.Stream]
		}
		if c := p[i].compare(o); c != 0 {
			return c
		}
	}
	return 0
}

// unnamed is in place of a name.
const unnamed = 0xff

func renamed(s Set, names *[MaxBlocks]uint8) (with Set) {
	for b := range s.All() {
		with |= 1 << names[b]
	}
	return with
}

// compare orders operations of one kind; programs that are compared have the same kinds.
func (o Op) compare(with Op) int {
	return cmp.Or(cmp.Compare(o.Stream, with.Stream), cmp.Compare(o.Block, with.Block), cmp.Compare(o.Reads, with.Reads), cmp.Compare(o.Writes, with.Writes))
}
