// Package level follows how much there is of something in time: now, at most, and the area
// below it.
package level

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// Amount is an amount of memory.
type Amount struct{ Requested, Bytes int64 }

// Area is bytes times nanoseconds, exactly: 64 bits would do for 18 GB held for a second.
type Area struct{ high, low uint64 }

// plus adds so many bytes for so long.
func (a Area) plus(bytes int64, d time.Duration) Area {
	high, low := bits.Mul64(uint64(max(bytes, 0)), uint64(d))
	low, carry := bits.Add64(a.low, low, 0)
	high, _ = bits.Add64(a.high, high, carry)
	return Area{high, low}
}

func (a Area) minus(b Area) Area {
	low, borrow := bits.Sub64(a.low, b.low, 0)
	high, _ := bits.Sub64(a.high, b.high, borrow)
	return Area{high, low}
}

// seconds is the area in bytes times seconds.
func (a Area) seconds() float64 {
	return (math.Ldexp(float64(a.high), 64) + float64(a.low)) / float64(time.Second)
}

// Areas are those of the two sizes of an amount.
type Areas struct{ requested, bytes Area }

// Minus is what came after b.
func (a Areas) Minus(b Areas) Areas {
	return Areas{a.requested.minus(b.requested), a.bytes.minus(b.bytes)}
}

// Seconds are the areas in bytes times seconds.
func (a Areas) Seconds() (requested, bytes float64) { return a.requested.seconds(), a.bytes.seconds() }

// Level is an amount and the areas below it. The zero value is nothing since the beginning of time.
// Its owner guards it.
type Level struct {
	Now   Amount
	areas Areas
	at    monotime.Instant
}

// AreasAt are the areas up to an instant; one before the last change, as clock readings of two
// processors may be, is taken for that. So areas never fall.
func (l *Level) AreasAt(at monotime.Instant) Areas {
	d := at.Since(l.at)
	return Areas{l.areas.requested.plus(l.Now.Requested, d), l.areas.bytes.plus(l.Now.Bytes, d)}
}

// Change adds to the amount from an instant on.
func (l *Level) Change(at monotime.Instant, by Amount) {
	l.areas, l.at = l.AreasAt(at), max(l.at, at)
	l.Now.Requested += by.Requested
	l.Now.Bytes += by.Bytes
}

// Highs are the most that a value was since each of several moments, which are numbered as
// they come. A change costs no more for many moments than for one: those since which the
// most is the same are one entry. The zero value has no moments. Its owner guards it.
type Highs []high

// high is the most since each of the moments after those of the entry before, up to the last.
// Later entries are lower.
type high struct {
	last int
	most int64
}

// Begin notes a moment, whose number is higher than all before, with the value then.
func (h *Highs) Begin(number int, now int64) {
	*h = append(slices.Delete(*h, h.above(now), len(*h)), high{number, now})
}

// Raise notes what the value is now.
func (h *Highs) Raise(now int64) {
	if n, at := len(*h), h.above(now); at < n {
		(*h)[at] = high{(*h)[n-1].last, now}
		*h = (*h)[:at+1]
	}
}

// above is how many entries are above a value.
func (h *Highs) above(now int64) int {
	n := len(*h)
	for n > 0 && (*h)[n-1].most <= now {
		n--
	}
	return n
}

// Since is the most since a moment.
func (h *Highs) Since(number int) int64 {
	at, _ := slices.BinarySearchFunc(*h, number, func(e high, number int) int { return e.last - number })
	return (*h)[at].most
}
