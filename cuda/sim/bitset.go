package sim

import "math/bits"

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
