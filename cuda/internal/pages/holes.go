package pages

import (
	"cmp"
	"slices"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// span is places for pages in a row, counted from the start of the reserved range.
type span struct{ first, n uint64 }

func (s span) end() uint64 { return s.first + s.n }

// run is pages at places in a row.
type run struct {
	span
	handles []driver.MemHandle
}

// split cuts a run behind its first n pages.
func (r run) split(n uint64) (head, tail run) {
	return run{span{r.first, n}, r.handles[:n]}, run{span{r.first + n, r.n - n}, r.handles[n:]}
}

// holes are the places where no page is, nor is on its way: in order, and no two of
// them adjacent.
type holes []span

// lowest is the first hole of at least n places.
func (h holes) lowest(n uint64) (at int, ok bool) {
	at = slices.IndexFunc(h, func(hole span) bool { return hole.n >= n })
	return at, at >= 0
}

// take takes the first n places of a hole that has as many.
func (h *holes) take(at int, n uint64) span {
	hole := &(*h)[at]
	taken := span{hole.first, n}
	hole.first, hole.n = hole.first+n, hole.n-n
	if hole.n == 0 {
		*h = slices.Delete(*h, at, at+1)
	}
	return taken
}

// add makes places a hole, one with those that it is adjacent to.
func (h *holes) add(s span) {
	if s.n == 0 {
		return
	}
	from, _ := slices.BinarySearchFunc(*h, s.first, func(hole span, first uint64) int { return cmp.Compare(hole.first, first) })
	to := from
	if to < len(*h) && (*h)[to].first == s.end() {
		s.n += (*h)[to].n
		to++
	}
	if from > 0 && (*h)[from-1].end() == s.first {
		from--
		s = span{(*h)[from].first, (*h)[from].n + s.n}
	}
	*h = slices.Replace(*h, from, to, s)
}
