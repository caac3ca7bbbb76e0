package pages

import (
	"cmp"
	"iter"
	"slices"
)

// Kind is what is at the addresses of a part.
type Kind uint8

// Kinds of parts: free memory of the stream that asks, which may end within a page; free pages of
// another stream, that can be had without a wait, or behind one; memory of its own that it must wait for;
// and a place where no page is.
const (
	Own Kind = iota
	Covered
	Waited
	Held
	Hole
)

// Part is addresses in a row of one kind. But for Own and Held they are whole pages.
type Part struct {
	Ptr, Bytes uint64
	Kind       Kind
	// From says whose the pages are, in the caller's words.
	From int
}

// End is the address behind the part.
func (p Part) End() uint64 { return p.Ptr + p.Bytes }

// Row is addresses for a block that no free range is long enough for: parts without a gap
// between them, of free memory that any stream has and of addresses where pages can be mapped.
// The last or the first may be a piece of what there was.
type Row []Part

// cost is what a row takes, the dearest first.
type cost struct{ missing, waits, of uint64 }

func (c cost) compare(o cost) int {
	return cmp.Or(cmp.Compare(c.missing, o.missing), cmp.Compare(c.waits, o.waits), cmp.Compare(c.of, o.of))
}

// BestRow is a row of at least so many bytes, with one hole at most: of all such rows one with the fewest
// pages missing, of those one with the fewest waits, then one that takes pages of the
// smallest parts, then one that lies low. parts are in the order of their addresses.
//
// A row of which both ends lie within parts costs no less than one of those that are got by moving it
// to the left or to the right. So only rows that begin where a part does, or end there, are looked at.
func BestRow(parts []Part, bytes, page uint64) (best Row, ok bool) {
	var least cost
	try := func(r Row, c cost, fits bool) {
		if fits && (!ok || c.compare(least) < 0) {
			best, least, ok = slices.Clone(r), c, true
		}
	}
	var buffer Row
	for i := range parts {
		var c cost
		var fits bool
		buffer, c, fits = upward(buffer[:0], parts[i:], bytes, page)
		try(buffer, c, fits)
		buffer, c, fits = downward(buffer[:0], parts[:i+1], bytes, page)
		try(buffer, c, fits)
	}
	return best, ok
}

// upward is the row that begins with the first of parts.
func upward(r Row, parts []Part, bytes, page uint64) (Row, cost, bool) {
	return extend(r, slices.Values(parts), bytes, page, func(p Part, n uint64) Part {
		p.Bytes = n
		return p
	})
}

// downward is the row that ends with the last of parts.
func downward(r Row, parts []Part, bytes, page uint64) (Row, cost, bool) {
	back := func(yield func(Part) bool) {
		for _, p := range slices.Backward(parts) {
			if !yield(p) {
				return
			}
		}
	}
	r, c, ok := extend(r, back, bytes, page, func(p Part, n uint64) Part {
		p.Ptr, p.Bytes = p.End()-n, n
		return p
	})
	slices.Reverse(r)
	return r, c, ok
}

// extend appends parts to a row until it has so many bytes. Of the last part it takes a piece.
func extend(r Row, parts iter.Seq[Part], bytes, page uint64, piece func(Part, uint64) Part) (Row, cost, bool) {
	var c cost
	for p := range parts {
		if gap := len(r) > 0 && r[len(r)-1].End() != p.Ptr && r[len(r)-1].Ptr != p.End(); gap || p.Kind == Hole && c.missing > 0 {
			return r, c, false
		}
		n := min(p.Bytes, bytes)
		if p.Kind != Own && p.Kind != Held {
			n = min(p.Bytes, (bytes+page-1)/page*page)
		}
		switch p.Kind {
		case Hole:
			c.missing += n / page
		case Waited, Held:
			c.waits++
			c.of += p.Bytes
		case Covered:
			c.of += p.Bytes
		}
		r = append(r, piece(p, n))
		if bytes <= n {
			return r, c, true
		}
		bytes -= n
	}
	return r, c, false
}
