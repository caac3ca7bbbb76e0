package corpus

import (
	"cmp"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

const wordBytes = 8

// Addr is an address on the device.
type Addr uint64

// Mem is a block that a program allocated.
type Mem struct{ core.Block }

// At is the address of a word of the block, counted from its start; it may lie
// outside.
func (m *Mem) At(word int) Addr { return m.Byte(wordBytes * word) }

// Byte is the address of a byte of the block.
func (m *Mem) Byte(i int) Addr { return Addr(m.ID.Ptr) + Addr(i) }

// Words is how many words the block has, the last one cut off if it is short.
func (m *Mem) Words() int { return int(m.Requested / wordBytes) }

// R is a use that reads.
func (m *Mem) R() core.Use { return core.Use{Block: m.ID, Access: core.Read} }

// W is a use that overwrites.
func (m *Mem) W() core.Use { return core.Use{Block: m.ID, Access: core.Write} }

// RW is a use that reads and writes.
func (m *Mem) RW() core.Use { return core.Use{Block: m.ID, Access: core.ReadWrite} }

// margin is what a block keeps from the ends of a mapped granule, so that a
// stray write beside it meets mapped memory.
const margin = 8 << 10

// inside reports whether margin bytes on both sides of a block are mapped.
func inside(b core.Block) bool {
	first, last := b.ID.Ptr%sim.Granule, (b.ID.Ptr+b.Bytes)%sim.Granule
	return b.Bytes >= sim.Granule/2 || first >= margin && last >= margin && last <= sim.Granule-margin
}

// Bytes allocates a block of some bytes. Those that lie at the edge of mapped
// memory are kept until the program ends.
func (w *World) Bytes(s *Stream, tag core.Tag, bytes uint64) *Mem {
	for range 64 {
		b, err := w.Allocate(w.ctx, core.Request{Bytes: bytes, Stream: s.ID(), Tag: tag})
		w.must(err)
		if w.Tier.OwnProcess || inside(b) { // each is a mapping of its own there
			return &Mem{b}
		}
		w.own = append(w.own, b.ID)
	}
	w.failf("no block of %d bytes keeps away from the edge of mapped memory", bytes)
	return nil
}

// Words allocates a block of n words.
func (w *World) Words(s *Stream, tag core.Tag, n int) *Mem {
	return w.Bytes(s, tag, uint64(n)*wordBytes)
}

// Filled allocates a block of n words and writes them.
func (w *World) Filled(s *Stream, tag core.Tag, n int, value uint64) *Mem {
	m := w.Words(s, tag, n)
	w.Write("fill_"+string(tag), s, m, value)
	return m
}

// Harmed is Filled for the block that the bug harms.
func (w *World) Harmed(s *Stream, tag core.Tag, n int, value uint64) *Mem {
	m := w.Filled(s, tag, n, value)
	w.Victim(m.ID)
	return m
}

// FreeRefused frees a block, which is a bug: the call may be refused.
func (w *World) FreeRefused(id core.BlockID) {
	_, err := w.Deallocate(w.ctx, id)
	w.Refused(err)
}

// Free gives blocks back.
func (w *World) Free(blocks ...*Mem) {
	for _, m := range blocks {
		_, err := w.Deallocate(w.ctx, m.ID)
		w.must(err)
	}
	if len(w.held) == 0 {
		w.passed()
	}
}

// passed waits until the device has passed every free, where that is when the
// memory is unmapped: what comes later comes late.
func (w *World) passed() {
	if w.Tier.OwnProcess {
		w.must(w.Drain(w.ctx))
	}
}

// Slice allocates typed memory.
func (w *World) Slice(s *Stream, tag core.Tag, n int) *cuda.Slice[uint64] {
	v, err := cuda.Alloc[uint64](w.ctx, w.Memory(), n, cuda.AllocOptions{Stream: s.ID(), Tag: tag})
	w.must(err)
	return v
}

// FillSlice writes all of a slice.
func (w *World) FillSlice(name string, s *Stream, v *cuda.Slice[uint64], value uint64) {
	w.Do(Job{Name: name, On: s, Uses: []core.Use{v.Use(core.Write)}, Kernel: testkernels.Write, Args: []any{Addr(v.Ptr()), v.Len(), value}})
}

// Memset is the driver's call, raw.
func (w *World) Memset(at Addr, value byte, bytes uint64) func(driver.Stream) error {
	return func(h driver.Stream) error { return w.Driver().MemsetAsync(uint64(at), value, bytes, h) }
}

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
