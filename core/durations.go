package core

import (
	"slices"
	"time"
)

// durationBounds part durations into buckets: 1, 2.5 and 5 of each power of
// ten from a microsecond to ten seconds.
var durationBounds = [...]time.Duration{
	1 * time.Microsecond, 2500 * time.Nanosecond, 5 * time.Microsecond,
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Durations is a histogram of durations. It is a value and shares nothing;
// the zero value is empty. It is not safe for concurrent use.
type Durations struct {
	// Buckets counts, for each of [Durations.Bounds], the durations up to it
	// and above the one before; the last entry counts those above all.
	Buckets [len(durationBounds) + 1]uint64
	// Nanoseconds is the sum of the durations: exact up to 104 days, rounded
	// beyond, and without an overflow.
	Nanoseconds float64
}

// Bounds are the upper bounds of the buckets, each inclusive, in ascending order, of every
// histogram. The slice is the caller's.
func (Durations) Bounds() []time.Duration { return slices.Clone(durationBounds[:]) }

// Note counts d.
func (h *Durations) Note(d time.Duration) {
	bucket := 0
	for bucket < len(durationBounds) && durationBounds[bucket] < d { // most are short, and a binary search takes longer for any
		bucket++
	}
	h.Buckets[bucket]++
	h.Nanoseconds += float64(d)
}

// Merge counts what other has counted, too.
func (h *Durations) Merge(other *Durations) {
	for i, n := range other.Buckets {
		h.Buckets[i] += n
	}
	h.Nanoseconds += other.Nanoseconds
}

// Count is the number of durations.
func (h Durations) Count() (n uint64) {
	for _, in := range h.Buckets {
		n += in
	}
	return n
}
