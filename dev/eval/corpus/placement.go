package corpus

import (
	"cmp"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// Pair allocates two filled blocks of n words, the one at the lower address
// first.
func (w *World) Pair(s *Stream, n int) (low, high *Mem) {
	low, high = w.Filled(s, "first", n, 1), w.Filled(s, "second", n, 2)
	if low.ID.Ptr > high.ID.Ptr {
		low, high = high, low
	}
	return low, high
}

// near is how far apart adjacent blocks may begin: their words, and what a guard
// puts between.
const near = 64 << 10

// Adjacent is Pair for two blocks with nothing of anybody else's between them.
// It allocates some, and keeps those that it does not return until the program
// ends.
func (w *World) Adjacent(s *Stream, n int) (low, high *Mem) {
	some := make([]*Mem, 8)
	for i := range some {
		some[i] = w.Words(s, "rows", n)
	}
	slices.SortFunc(some, func(a, b *Mem) int { return cmp.Compare(a.ID.Ptr, b.ID.Ptr) })
	best := 0
	for i := range some[1:] {
		if some[i+1].ID.Ptr-some[i].ID.Ptr < some[best+1].ID.Ptr-some[best].ID.Ptr {
			best = i
		}
	}
	low, high = some[best], some[best+1]
	if high.ID.Ptr-low.ID.Ptr > near {
		w.failf("no two of %d blocks lie side by side", len(some))
	}
	for _, m := range slices.Delete(some, best, best+2) {
		w.own = append(w.own, m.ID)
	}
	w.Write("fill_low", s, low, 1)
	w.Write("fill_high", s, high, 2)
	return low, high
}

// Enclosed is Filled for a block whose neighbours live until the program ends:
// when it is freed, no other free memory joins it, and its address comes again.
func (w *World) Enclosed(s *Stream, tag core.Tag, n int, value uint64) *Mem {
	neighbour := func() { w.own = append(w.own, w.Words(s, "neighbour", n).ID) }
	for range 8 { // the first ones fill holes
		neighbour()
	}
	m := w.Filled(s, tag, n, value)
	neighbour()
	return m
}

// Reuse gives an enclosed block back, waits until it has left quarantine, and allocates
// until a block of the same size begins at its address; the others are given
// back.
func (w *World) Reuse(s *Stream, m *Mem, tag core.Tag) *Mem {
	w.Free(m)
	w.must(w.Drain(w.ctx))
	var others []*Mem
	defer func() { w.Free(others...) }()
	for range 64 {
		b, err := w.Allocate(w.ctx, core.Request{Bytes: m.Requested, Stream: s.ID(), Tag: tag})
		w.must(err)
		if b.ID.Ptr == m.ID.Ptr {
			return &Mem{b}
		}
		others = append(others, &Mem{b})
	}
	w.failf("the address of a freed block did not come again")
	return nil
}
