package fit

import "math/bits"

// classes are the free ranges in lists by size: one for each number of units below 64, and
// from there on 32 from a size to its double. The lists are in rows of 32: a set bit of
// rows stands for a row that is not empty, one of lists for a list of the row.
type classes struct {
	rows  uint64
	lists [rowCount]uint32
	// first has no rows above the largest range that there ever was.
	first []*record
}

const (
	rowBits   = 5
	rowLength = 1 << rowBits
	// rowCount is one more than sizes below 2^56 units need, which are all, so that there
	// is a class above each.
	rowCount = 56 - rowBits + 2
)

// class is the number of the list of some sizes: larger sizes have larger numbers.
type class uint

func classOf(bytes uint64) class {
	units := bytes / unit
	row := uint(max(bits.Len64(units), rowBits+1) - rowBits - 1)
	return class(row<<rowBits + uint(units>>(row&63)))
}

func (at class) row() uint   { return uint(at) / rowLength }
func (at class) bit() uint32 { return 1 << (uint(at) % rowLength) }

// insert enters a range in the list of its class.
func (c *classes) insert(r *record) {
	at := classOf(r.bytes)
	if int(at) >= len(c.first) {
		c.first = append(c.first, make([]*record, (int(at.row())+1)*rowLength-len(c.first))...)
	}
	next := c.first[at]
	r.prev, r.next, r.free = nil, next, true
	if next != nil {
		next.prev = r
	}
	c.first[at] = r
	c.lists[at.row()] |= at.bit()
	c.rows |= 1 << (at.row() & 63)
}

// remove takes a range out of the list of its class.
func (c *classes) remove(r *record) {
	r.free = false
	if r.next != nil {
		r.next.prev = r.prev
	}
	if r.prev != nil {
		r.prev.next = r.next
		return
	}
	at := classOf(r.bytes)
	c.first[at] = r.next
	if r.next != nil {
		return
	}
	c.lists[at.row()] &^= at.bit()
	if c.lists[at.row()] == 0 {
		c.rows &^= 1 << (at.row() & 63)
	}
}

// from is the first range of the first class that has one, from a class on.
func (c *classes) from(at class) *record {
	row := at.row()
	lists := c.lists[row] &^ (at.bit() - 1)
	if lists == 0 {
		rows := c.rows &^ (2<<(row&63) - 1)
		if rows == 0 {
			return nil
		}
		row = uint(bits.TrailingZeros64(rows))
		lists = c.lists[row]
	}
	return c.first[row*rowLength+uint(bits.TrailingZeros32(lists))]
}

// find is a range of at least so many bytes: the first of their own class if it is large
// enough, else one of the next class that has one, else any of their own class.
func (c *classes) find(bytes uint64) *record {
	own := classOf(bytes)
	if int(own) >= len(c.first) {
		return nil
	}
	r := c.first[own]
	if r != nil && r.bytes >= bytes {
		return r
	}
	if above := c.from(own + 1); above != nil {
		return above
	}
	for r != nil && r.bytes < bytes {
		r = r.next
	}
	return r
}

// largest is the size of the largest range.
func (c *classes) largest() (bytes uint64) {
	if c.rows == 0 {
		return 0
	}
	row := bits.Len64(c.rows) - 1
	for r := c.first[row*rowLength+bits.Len32(c.lists[row])-1]; r != nil; r = r.next {
		bytes = max(bytes, r.bytes)
	}
	return bytes
}

// each calls yield for the ranges of the class of so many bytes and of all larger ones,
// class by class, until that returns false.
func (c *classes) each(bytes uint64, yield func(*record) bool) {
	for first := c.from(classOf(bytes)); first != nil; first = c.from(classOf(first.bytes) + 1) {
		for r := first; r != nil; r = r.next {
			if !yield(r) {
				return
			}
		}
	}
}
