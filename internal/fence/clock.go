package fence

// clock is a vector clock, indexed by stream slot: the newest sequence number
// of that slot's stream that the clock's owner is ordered after. Slots beyond
// its length are at zero, so its width is that of the streams alive.
type clock []uint64

// newClock returns a clock with room for the usual number of streams, so that
// clocks of different streams share no cache line.
func newClock() clock { return make(clock, 0, 16) }

// at returns the entry of slot.
func (c clock) at(slot int) uint64 {
	if slot < len(c) {
		return c[slot]
	}
	return 0
}

// covers reports whether the owner is ordered after operation seq of slot.
func (c clock) covers(slot int, seq uint64) bool { return c.at(slot) >= seq }

// set raises the entry of slot to seq and returns the clock.
func (c clock) set(slot int, seq uint64) clock {
	for len(c) <= slot {
		c = append(c, 0)
	}
	c[slot] = max(c[slot], seq)
	return c
}

// join raises every entry to that of other and returns the clock.
func (c clock) join(other clock) clock {
	for len(c) < len(other) {
		c = append(c, 0)
	}
	for i, seq := range other {
		c[i] = max(c[i], seq)
	}
	return c
}

// copyFrom makes c equal to other, reusing its memory.
func (c clock) copyFrom(other clock) clock { return append(c[:0], other...) }
