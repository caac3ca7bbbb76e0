// Package canary says where the guard's canaries lie in a block and what they look
// like: red zones on both sides of the caller's bytes, and poison in bytes that
// were freed. It is pure: no lock, no driver, no state.
package canary

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
)

// zone is a part of a guarded block that the guard watches.
type zone uint8

const (
	leftZone zone = iota + 1
	rightZone
	poisonZone
)

// A large block is poisoned at PoisonSpots places of poisonSpot bytes each.
const (
	PoisonSpots = 3
	poisonSpot  = 64
)

// Layout is where things lie in a guarded block: left red zone, the caller's
// bytes, right red zone.
type Layout struct {
	Base, Left, Body, Right uint64
}

// enoughSlack is the slack of rounding in bytes that makes a right red zone
// where thrift is wanted: what the widest access of a thread reaches.
const enoughSlack = 16

// LayoutFor is the layout, still without a base, of a block of body bytes.
// ok is false if it has no place in the address space. The left zone keeps
// the alignment that every resource honours; the whole is rounded up, and the
// slack of the rounding belongs to the right zone. A thrifty layout has no
// more of a right zone than that, where there is enough of it and no more than
// a unit of alignment was asked for.
func LayoutFor(body, redZone uint64, thrifty bool) (l Layout, ok bool) {
	left, right := RoundUp(redZone, core.DefaultAlign), redZone
	if slack := RoundUp(body, core.DefaultAlign) - body; thrifty && redZone <= core.DefaultAlign && slack >= min(redZone, enoughSlack) {
		right = slack
	}
	total := left + body + right
	if total < body || RoundUp(total, core.DefaultAlign) < total {
		return Layout{}, false
	}
	return Layout{Left: left, Body: body, Right: RoundUp(total, core.DefaultAlign) - left - body}, true
}

// RoundUp is n rounded up to the next multiple of unit.
func RoundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// Total is the size of all three in bytes.
func (l Layout) Total() uint64 { return l.Left + l.Body + l.Right }

// Start is the caller's pointer.
func (l Layout) Start() uint64 { return l.Base + l.Left }

// Contains reports whether a caller's pointer lies in the caller's bytes.
func (l Layout) Contains(ptr uint64) bool { return ptr >= l.Start() && ptr-l.Start() < l.Body }

// RedZones appends the two red zones of generation g.
func (l Layout) RedZones(to []deviceops.Region, g core.Generation) []deviceops.Region {
	return append(to,
		deviceops.Region{Ptr: l.Base, Bytes: l.Left, Pattern: redPattern(g, leftZone)},
		deviceops.Region{Ptr: l.Start() + l.Body, Bytes: l.Right, Pattern: redPattern(g, rightZone)})
}

// Poison appends the places that hold poison while the block is quarantined:
// all of it, or its first, middle and last words.
func (l Layout) Poison(to []deviceops.Region, g core.Generation, whole bool) []deviceops.Region {
	p := poisonPattern(g)
	if whole || l.Body <= PoisonSpots*poisonSpot {
		return append(to, deviceops.Region{Ptr: l.Start(), Bytes: l.Body, Pattern: p})
	}
	for _, at := range [...]uint64{0, (l.Body - poisonSpot) / 2 &^ 7, l.Body - poisonSpot} {
		to = append(to, deviceops.Region{Ptr: l.Start() + at, Bytes: poisonSpot, Pattern: p})
	}
	return to
}

// Widened is the layout with the right zone up to the next multiple of unit, if
// that is not 0.
func (l Layout) Widened(unit uint64) Layout {
	if unit == 0 {
		return l
	}
	if total := RoundUp(l.Total(), unit); total > l.Total() {
		l.Right += total - l.Total()
	}
	return l
}

// redPattern derives a red zone's pattern from whose it is and on which side,
// so a copy of another one does not pass. No byte is 0x00 or 0xFF: what stray
// writes most often write must differ from what was there.
func redPattern(g core.Generation, side zone) uint64 {
	x := Mix(uint64(g)*4 + uint64(side))
	var pattern uint64
	for i := 0; i < 64; i += 8 {
		b := x >> i & 0xFF
		if b == 0 || b == 0xFF {
			b = 0xA5
		}
		pattern |= b << i
	}
	return pattern
}

// poisonPattern derives the poison of a freed block. Each 16-bit lane has all
// exponent bits of float16 and of bfloat16 set and a mantissa that is not
// zero, which makes the 32-bit lanes NaN too; the highest lane has the
// exponent bits of float64.
func poisonPattern(g core.Generation) uint64 {
	const nan, mantissa, notZero = 0xFFF0_FF80_FF80_FF80, 0x007F_007F_007F_007F, 0x0001_0001_0001_0001
	return nan | Mix(uint64(g)*4+uint64(poisonZone))&mantissa | notZero
}

// Mix is the finaliser of splitmix64: a bijection in which every input bit
// changes about half of the output bits.
func Mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
