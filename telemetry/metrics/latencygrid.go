package metrics

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// Durations of operations are exported as a classic histogram and as a native
// one. Both have boundaries of their own, and counting twice would cost twice:
// so what is counted is cells, between any two neighbours of either kind, and a
// scrape sums cells up to the buckets of both, exactly.
const (
	// nativeSchema parts each power of two into 8 buckets, a tenth apart.
	nativeSchema = 3
	perOctave    = 1 << nativeSchema
	// The native buckets with these indexes are the first and the last. Shorter
	// durations (2^-24 s, 60 ns) are in the zero bucket, longer ones (2^10 s, 17
	// minutes) count as the longest.
	lowestKey  = -24 * perOctave
	highestKey = 10 * perOctave
	// cells is room for all of them: the last counts what is above all.
	cells = highestKey - lowestKey + 1 + classicBounds + 1

	classicBounds = 25
)

// latencyBounds are the bounds of the classic buckets: those of
// [core.Durations], and finer ones below, where most operations are.
var latencyBounds = append([]time.Duration{100, 250, 500}, core.Durations{}.Bounds()...)

// grid is what the cells are.
var grid = newLatencyGrid()

type latencyGrid struct {
	// upTo are the bounds of the cells in nanoseconds, inclusive.
	upTo [cells]uint64
	// classic and native are the buckets of each cell.
	classic [cells]int
	native  [cells]int
	// first is the first cell that a duration can be in, by the place of its
	// highest bit and the three bits below.
	first [65 << finer]uint16
}

const finer = 3

func newLatencyGrid() *latencyGrid {
	var bounds []uint64
	for key := lowestKey; key <= highestKey; key++ {
		bounds = append(bounds, nativeBound(key))
	}
	for _, bound := range latencyBounds {
		bounds = append(bounds, uint64(bound))
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)

	g := &latencyGrid{}
	key, classic := lowestKey, 0
	for i := range g.upTo {
		bound := uint64(math.MaxUint64)
		if i < len(bounds) {
			bound = bounds[i]
		}
		for key < highestKey && nativeBound(key) < bound {
			key++
		}
		for classic < len(latencyBounds) && uint64(latencyBounds[classic]) < bound {
			classic++
		}
		g.upTo[i], g.native[i], g.classic[i] = bound, key, classic
	}
	for slot := range g.first {
		lowest := lowestIn(slot)
		g.first[slot] = uint16(slices.IndexFunc(g.upTo[:], func(bound uint64) bool { return lowest <= bound }))
	}
	return g
}

// nativeBound is the bound of a native bucket in whole nanoseconds, which is
// all that a duration has.
func nativeBound(key int) uint64 {
	return uint64(math.Floor(math.Exp2(float64(key)/perOctave) * 1e9))
}

// slotOf is the place of the highest bit and the bits below it.
func slotOf(nanoseconds uint64) int {
	n := bits.Len64(nanoseconds)
	if n <= finer {
		return 0
	}
	return n<<finer | int(nanoseconds>>(n-1-finer)&(1<<finer-1))
}

// lowestIn is the shortest duration of a slot.
func lowestIn(slot int) uint64 {
	n := slot >> finer
	if n <= finer {
		return 0
	}
	return (1<<finer | uint64(slot&(1<<finer-1))) << (n - 1 - finer)
}

// cellOf is the cell of a duration.
func (g *latencyGrid) cellOf(nanoseconds uint64) int {
	i := int(g.first[slotOf(nanoseconds)])
	for nanoseconds > g.upTo[i] {
		i++
	}
	return i
}
