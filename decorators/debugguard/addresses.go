package debugguard

import "math/bits"

// addresses finds records by an address in their block. Nothing asks for that
// but a launch that hands the device a pointer into no block it declares, so
// a shard builds its index with the first question and keeps it from then on.
//
// A block is entered once, under its class, which is the logarithm of its size
// rounded up, and the number of the unit of that size in which it begins. It
// reaches into the next unit at most, so an address is looked for in two units
// of each class that there is.
type addresses struct {
	heads   []*record
	n       int
	classes [65]uint32
}

func class(rec *record) uint { return uint(bits.Len64(max(rec.bytes, 1) - 1)) }

func (a *addresses) bucket(class uint, unit uint64) *(*record) {
	return &a.heads[(unit*0x9e3779b97f4a7c15+uint64(class)*0xd6e8feb86659fd93)>>32&uint64(len(a.heads)-1)]
}

func (a *addresses) enter(rec *record) {
	if a.n == len(a.heads) {
		a.grow()
	}
	a.link(rec)
	a.n++
	a.classes[class(rec)]++
}

func (a *addresses) link(rec *record) {
	c := class(rec)
	head := a.bucket(c, rec.ptr>>c)
	rec.neighbour, *head = *head, rec
}

func (a *addresses) grow() {
	old := a.heads
	a.heads = make([]*record, max(firstBuckets, 2*a.n))
	for _, rec := range old {
		for rec != nil {
			next := rec.neighbour
			a.link(rec)
			rec = next
		}
	}
}

func (a *addresses) remove(rec *record) {
	c := class(rec)
	for at := a.bucket(c, rec.ptr>>c); *at != nil; at = &(*at).neighbour {
		if *at == rec {
			*at, rec.neighbour = rec.neighbour, nil
			a.n--
			a.classes[c]--
			return
		}
	}
}

// at calls visit for each record whose block has the address in it.
func (a *addresses) at(ptr uint64, visit func(*record)) {
	for c, n := range a.classes {
		if n == 0 {
			continue
		}
		unit := ptr >> c
		for back := range min(unit, 1) + 1 {
			for rec := *a.bucket(uint(c), unit-back); rec != nil; rec = rec.neighbour {
				if class(rec) == uint(c) && rec.ptr>>c == unit-back && rec.contains(ptr) {
					visit(rec)
				}
			}
		}
	}
}
