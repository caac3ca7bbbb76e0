package sim

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Fabricated address spaces: fixed, so that a run can be repeated, and far
// from each other and from zero, so that a wild address is told at once, and
// so is one of another device.
const (
	deviceBase uint64 = 0x7000_0000_0000
	hostBase   uint64 = 0x6000_0000_0000
	deviceSpan        = maxBytes * vaFactor
	// mapBase lies above the addresses of all devices' pools.
	mapBase uint64 = 1 << 48
)

// vaFactor is how much more address space than memory an arena has, so that
// holes between mapped granules do not look like lack of memory.
const vaFactor = 2

// unit is the alignment in bytes of every address that is handed out.
const unit uint64 = 256

// arena is one address space with its bytes. The bytes lie outside Go's heap:
// the race detector must judge host state alone, since unfenced accesses to
// device bytes are what the oracle is there for.
type arena struct {
	pages       pages
	base, limit uint64
	mem         []byte
	region      []byte // mem and, behind it, the words of starts
	// starts has a member per step, which divides the addresses of nodes, at which
	// a node begins.
	starts *bitset
	step   uint64
	// mapped has of each granule what memory is there, nil for none. It is read
	// without a lock by accesses.
	mapped []atomic.Pointer[granule]
}

func newArena(base, capacity, step uint64) (*arena, error) {
	span := capacity * vaFactor
	indexWords := (span/step + 63) / 64
	region, err := system.reserve(span + indexWords*8)
	if err != nil {
		return nil, fmt.Errorf("sim: cannot reserve %d bytes of address space: %w; lower Config.Bytes or raise the process's address space limit", span, err)
	}
	if err := system.commit(region[span:]); err != nil {
		return nil, errors.Join(fmt.Errorf("sim: cannot have %d bytes for the index of addresses: %w; lower Config.Bytes", indexWords*8, err), system.release(region))
	}
	index := unsafe.Slice((*uint64)(unsafe.Pointer(&region[span])), indexWords)
	return &arena{
		pages: system, base: base, limit: base + span, mem: region[:span:span], region: region,
		starts: newBitset(index), step: step,
		mapped: make([]atomic.Pointer[granule], span/Granule),
	}, nil
}

// close gives the address space back. The arena holds no address and no node afterwards, so a call
// that comes later finds nothing and touches nothing. The locks of its heap and device are held.
func (a *arena) close() error {
	a.limit, a.starts = a.base, new(bitset)
	return a.pages.release(a.region)
}

// granules are those that a range touches.
func (a *arena) granules(ptr, n uint64) []atomic.Pointer[granule] {
	return a.mapped[(ptr-a.base)/Granule : (ptr+n-1-a.base)/Granule+1]
}

// contains reports whether [ptr, ptr+n) lies inside the address space.
func (a *arena) contains(ptr, n uint64) bool {
	return ptr >= a.base && ptr <= a.limit && n <= a.limit-ptr
}

// isMapped reports whether all of [ptr, ptr+n) is backed by memory.
func (a *arena) isMapped(ptr, n uint64) bool {
	if n == 0 || !a.contains(ptr, n) {
		return false
	}
	touched := a.granules(ptr, n)
	for i := range touched {
		if touched[i].Load() == nil {
			return false
		}
	}
	return true
}

// bytes is the memory at [ptr, ptr+n), which the caller has checked, to be
// touched only by way of [arena.reach].
func (a *arena) bytes(ptr, n uint64) []byte {
	off := ptr - a.base
	return a.mem[off : off+n : off+n]
}

// setMapped backs granules with memory, and lets accesses at it. It fails if the
// machine has none left.
func (a *arena) setMapped(ptr, n uint64) error {
	if err := a.commit(ptr, n); err != nil {
		return err
	}
	a.expose(ptr, n)
	return nil
}

func (a *arena) commit(ptr, n uint64) error { return a.pages.commit(a.bytes(ptr, n)) }

// expose lets accesses at granules that are backed.
func (a *arena) expose(ptr, n uint64) {
	exposed := a.granules(ptr, n)
	for i := range exposed {
		exposed[i].Store(&settled)
	}
}

// holds reports whether an address of this process is one of the arena's bytes,
// and which address of the device it is.
func (a *arena) holds(addr uintptr) (ptr uint64, ok bool) {
	off := uint64(addr - uintptr(unsafe.Pointer(unsafe.SliceData(a.mem))))
	return a.base + off, off < uint64(len(a.mem))
}

// unmap takes granules away and gives their pages back to the machine.
func (a *arena) unmap(ptr, n uint64) {
	gone := a.granules(ptr, n)
	for i := range gone {
		gone[i].Store(nil)
	}
	a.pages.giveBack(a.bytes(ptr, n))
}

// findGranules returns the lowest run of n unmapped granules.
func (a *arena) findGranules(n int) (ptr uint64, ok bool) {
	run := 0
	for g := range a.mapped {
		if a.mapped[g].Load() != nil {
			run = 0
		} else if run++; run == n {
			return a.base + uint64(g-n+1)*Granule, true
		}
	}
	return 0, false
}

// bitset finds the largest member at or below a number in a few steps,
// whatever the number of members: level i+1 has a bit for each non-zero word
// of level i. It answers "which block holds this address".
type bitset struct{ levels [][]uint64 }

// newBitset makes an empty set whose lowest level is the zeroed words given.
func newBitset(words []uint64) *bitset {
	b := &bitset{levels: [][]uint64{words}}
	for size := len(words); size > 1; {
		size = (size + 63) / 64
		b.levels = append(b.levels, make([]uint64, size))
	}
	return b
}

func (b *bitset) set(i uint64) {
	for _, level := range b.levels {
		old := level[i/64]
		level[i/64] = old | 1<<(i%64)
		if old != 0 {
			return
		}
		i /= 64
	}
}

func (b *bitset) clear(i uint64) {
	for _, level := range b.levels {
		level[i/64] &^= 1 << (i % 64)
		if level[i/64] != 0 {
			return
		}
		i /= 64
	}
}

// floor returns the largest member that is at most i.
func (b *bitset) floor(i uint64) (uint64, bool) {
	for n, level := range b.levels {
		// At the levels above, word i/64 itself has been looked at.
		mask := uint64(2)<<(i%64) - 1
		if n > 0 {
			mask >>= 1
		}
		if word := level[i/64] & mask; word != 0 {
			return b.descend(n, i/64*64+uint64(bits.Len64(word)-1)), true
		}
		i /= 64
	}
	return 0, false
}

// descend returns the largest member below bit i of a level.
func (b *bitset) descend(level int, i uint64) uint64 {
	for level--; level >= 0; level-- {
		i = i*64 + uint64(bits.Len64(b.levels[level][i])-1)
	}
	return i
}
