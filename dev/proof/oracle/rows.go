package oracle

import "math/bits"

// rows is a bit matrix: row n is a set of nodes.
type rows struct {
	words []uint64
	// width is the words of a row.
	width int
}

func (r *rows) reset() { r.words, r.width = r.words[:0], max(r.width, 1) }

// grow makes room for n rows of n bits.
func (r *rows) grow(n int) {
	if n > 64*r.width {
		r.widen(2 * r.width)
	}
	for len(r.words) < n*r.width {
		r.words = append(r.words, 0)
	}
}

func (r *rows) widen(width int) {
	n := len(r.words) / r.width
	wide := make([]uint64, n*width)
	for i := range n {
		copy(wide[i*width:], r.words[i*r.width:(i+1)*r.width])
	}
	r.words, r.width = wide, width
}

// like makes r as large as other.
func (r *rows) like(other *rows) {
	r.width = other.width
	for len(r.words) < len(other.words) {
		r.words = append(r.words, 0)
	}
	r.words = r.words[:len(other.words)]
}

func (r *rows) row(n int32) []uint64 { return r.words[int(n)*r.width : (int(n)+1)*r.width] }

func (r *rows) clear(n int32) { clear(r.row(n)) }

func (r *rows) has(n, bit int32) bool { return has(r.row(n), bit) }

func (r *rows) set(n, bit int32) { add(r.row(n), bit) }

func (r *rows) unset(n, bit int32) { r.row(n)[bit>>6] &^= 1 << (uint(bit) & 63) }

// unite adds a row to row n.
func (r *rows) unite(n, from int32) { unite(r.row(n), r.row(from)) }

// join adds node from, and all of its row, to row n. A negative from is none.
func (r *rows) join(n, from int32) { r.joinOf(r, n, from) }

// joinOf is join with the row of another matrix.
func (r *rows) joinOf(other *rows, n, from int32) {
	if from >= 0 {
		unite(r.row(n), other.row(from))
		r.set(n, from)
	}
}

func has(set []uint64, at int32) bool { return set[at>>6]>>(uint(at)&63)&1 != 0 }
func add(set []uint64, at int32)      { set[at>>6] |= 1 << (uint(at) & 63) }

func unite(into, set []uint64) {
	for i := range into {
		into[i] |= set[i]
	}
}

// countBeyond is the number of bits in the first set that are not in the second
// and are in the third.
func countBeyond(set, without, of []uint64) int {
	n := 0
	for i := range set {
		n += bits.OnesCount64(set[i] &^ without[i] & of[i])
	}
	return n
}
