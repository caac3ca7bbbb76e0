package fence

import "slices"

// clock is a vector clock: of a stream, by its slot, the newest sequence number that the clock's
// owner is ordered after. It has the streams that it knows of, in the order of their slots. Of
// thousands of streams most know of a few, and to copy a place for each takes longer than a launch.
type clock []tick

type tick struct {
	slot int
	seq  uint64
}

// newClock returns a clock with room for the usual number of streams, so that
// clocks of different streams share no cache line.
func newClock() clock { return make(clock, 0, 8) }

// find is the place of slot, or where it belongs, which is not before low. That is mostly low where
// one is looked for after the other.
func (c clock) find(low, slot int) int {
	if low < len(c) && c[low].slot >= slot {
		return low
	}
	for high := len(c); low < high; {
		if mid := (low + high) / 2; c[mid].slot < slot {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// at returns the entry of slot.
func (c clock) at(slot int) uint64 {
	if i := c.find(0, slot); c.isAt(i, slot) {
		return c[i].seq
	}
	return 0
}

func (c clock) isAt(i, slot int) bool { return i < len(c) && c[i].slot == slot }

// covers reports whether the owner is ordered after operation seq of slot.
func (c clock) covers(slot int, seq uint64) bool { return c.at(slot) >= seq }

// set raises the entry of slot to seq and returns the clock.
func (c clock) set(slot int, seq uint64) clock {
	return c.raise(c.find(0, slot), tick{slot, seq})
}

// raise is set for an entry whose place is known.
func (c clock) raise(i int, t tick) clock {
	if !c.isAt(i, t.slot) {
		return slices.Insert(c, i, t)
	}
	c[i].seq = max(c[i].seq, t.seq)
	return c
}

// join raises every entry to that of other and returns the clock.
func (c clock) join(other clock) clock {
	i := 0
	for _, t := range other {
		i = c.find(i, t.slot)
		c = c.raise(i, t)
		i++
	}
	return c
}

// copyFrom makes c equal to other, reusing its memory.
func (c clock) copyFrom(other clock) clock {
	if len(other) == 1 && cap(c) > 0 { // of a stream that knows of no other, which a call takes longer to copy
		c = c[:1]
		c[0] = other[0]
		return c
	}
	return append(c[:0], other...)
}
