package pages

import (
	"cmp"
	"iter"
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

// pieces are the handles of pages in a row by what is mapped as one: a page, or the pages of a slab, each of which
// has the slab's handle.
func pieces(handles []driver.MemHandle) iter.Seq[[]driver.MemHandle] {
	return func(yield func([]driver.MemHandle) bool) {
		for len(handles) > 0 {
			n := 1
			for n < len(handles) && handles[n] == handles[0] {
				n++
			}
			if !yield(handles[:n]) {
				return
			}
			handles = handles[n:]
		}
	}
}

// split cuts a run behind its first n pages.
func (r run) split(n uint64) (head, tail run) {
	return run{span{r.first, n}, r.handles[:n]}, run{span{r.first + n, r.n - n}, r.handles[n:]}
}

// holes are the places where no page is, nor is on its way: in order, and no two of
// them adjacent.
type holes []span

// find finds the hole that some places are of.
func (h holes) find(s span) (at int, ok bool) {
	at, ok = slices.BinarySearchFunc(h, s.first, func(hole span, first uint64) int {
		if hole.end() <= first {
			return -1
		}
		return max(0, cmp.Compare(hole.first, first))
	})
	return at, ok && s.end() <= h[at].end()
}

// cut takes places out of the hole that they are of.
func (h *holes) cut(at int, s span) {
	hole := (*h)[at]
	rest := []span{{hole.first, s.first - hole.first}, {s.end(), hole.end() - s.end()}}
	*h = slices.Replace(*h, at, at+1, slices.DeleteFunc(rest, func(s span) bool { return s.n == 0 })...)
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
