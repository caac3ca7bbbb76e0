package fit

import "math/bits"

// classes are the free ranges by their sizes. A set bit of rows stands for a row that is
// not empty, one of columns for a list of the row.
type classes struct {
	rows    uint64
	columns [classRows]uint32
	lists   [classRows][classColumns]*record
}

const (
	classColumns = 32
	classBits    = 5                      // of a column's number
	classRows    = 64 - 8 - classBits + 2 // units of 256 bytes, the row of the smallest, one above all
)

// class is where the ranges of some sizes are: larger sizes have larger classes.
type class struct{ row, column int }

func classOf(bytes uint64) class {
	units := bytes / unit
	if units < classColumns {
		return class{0, int(units)}
	}
	row := bits.Len64(units) - classBits
	return class{row, int(units>>(row-1)) % classColumns}
}

// insert enters a range in the list of its class.
func (c *classes) insert(r *record) {
	at := classOf(r.bytes)
	head := &c.lists[at.row][at.column]
	r.prev, r.next, r.free = nil, *head, true
	if r.next != nil {
		r.next.prev = r
	}
	*head = r
	c.rows |= 1 << at.row
	c.columns[at.row] |= 1 << at.column
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
	c.lists[at.row][at.column] = r.next
	if r.next != nil {
		return
	}
	c.columns[at.row] &^= 1 << at.column
	if c.columns[at.row] == 0 {
		c.rows &^= 1 << at.row
	}
}

// from is the first class that is not empty, from one on.
func (c *classes) from(at class) (class, bool) {
	if columns := c.columns[at.row] >> at.column << at.column; columns != 0 {
		return class{at.row, bits.TrailingZeros32(columns)}, true
	}
	rows := c.rows >> (at.row + 1) << (at.row + 1)
	if rows == 0 {
		return class{}, false
	}
	row := bits.TrailingZeros64(rows)
	return class{row, bits.TrailingZeros32(c.columns[row])}, true
}

func (c class) above() class {
	return class{c.row + (c.column+1)/classColumns, (c.column + 1) % classColumns}
}

// find is a range of at least so many bytes: the first of their own class if it is large
// enough, else one of the next class that has one, else any of their own class.
func (c *classes) find(bytes uint64) *record {
	own := classOf(bytes)
	first := c.lists[own.row][own.column]
	if first != nil && first.bytes >= bytes {
		return first
	}
	if at, ok := c.from(own.above()); ok {
		return c.lists[at.row][at.column]
	}
	for r := first; r != nil; r = r.next {
		if r.bytes >= bytes {
			return r
		}
	}
	return nil
}

// last is the first range of the largest class that has one.
func (c *classes) last() *record {
	if c.rows == 0 {
		return nil
	}
	row := bits.Len64(c.rows) - 1
	return c.lists[row][bits.Len32(c.columns[row])-1]
}

// each calls yield for the ranges of the class of so many bytes and of all larger ones,
// class by class, until that returns false.
func (c *classes) each(bytes uint64, yield func(*record) bool) {
	for at, ok := c.from(classOf(bytes)); ok; at, ok = c.from(at.above()) {
		for r := c.lists[at.row][at.column]; r != nil; r = r.next {
			if !yield(r) {
				return
			}
		}
	}
}
