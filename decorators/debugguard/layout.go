package debugguard

import "github.com/fencepost-gpu/fencepost/core"

// zone is a part of a guarded block that the guard watches.
type zone uint8

const (
	leftZone zone = iota + 1
	rightZone
	poisonZone
)

// poisonSpot is the length in bytes of each of the places at which a large block
// is poisoned.
const (
	poisonSpot  = 64
	poisonSpots = 3
)

// layout is where things lie in a guarded block: left red zone, the caller's
// bytes, right red zone.
type layout struct {
	base, left, body, right uint64
}

// enoughSlack is the slack of rounding in bytes that makes a right red zone
// where thrift is wanted: what the widest access of a thread reaches.
const enoughSlack = 16

// layoutFor is the layout, still without a base, of a block of body bytes.
// ok is false if it has no place in the address space. The left zone keeps
// the alignment that every resource honours; the whole is rounded up, and the
// slack of the rounding belongs to the right zone. A thrifty layout has no
// more of a right zone than that, where there is enough of it and no more than
// a unit of alignment was asked for.
func layoutFor(body, redZone uint64, thrifty bool) (l layout, ok bool) {
	left, right := roundUp(redZone, core.DefaultAlign), redZone
	if slack := roundUp(body, core.DefaultAlign) - body; thrifty && redZone <= core.DefaultAlign && slack >= min(redZone, enoughSlack) {
		right = slack
	}
	total := left + body + right
	if total < body || roundUp(total, core.DefaultAlign) < total {
		return layout{}, false
	}
	return layout{left: left, body: body, right: roundUp(total, core.DefaultAlign) - left - body}, true
}

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

func (l layout) total() uint64 { return l.left + l.body + l.right }

// start is the caller's pointer.
func (l layout) start() uint64 { return l.base + l.left }

// contains reports whether a caller's pointer lies in the caller's bytes.
func (l layout) contains(ptr uint64) bool { return ptr >= l.start() && ptr-l.start() < l.body }

// redZones appends the two red zones of generation g.
func (l layout) redZones(to []core.Region, g core.Generation) []core.Region {
	return append(to,
		core.Region{Ptr: l.base, Bytes: l.left, Pattern: redPattern(g, leftZone)},
		core.Region{Ptr: l.start() + l.body, Bytes: l.right, Pattern: redPattern(g, rightZone)})
}

// poison appends the places that hold poison while the block is quarantined:
// all of it, or its first, middle and last words.
func (l layout) poison(to []core.Region, g core.Generation, whole bool) []core.Region {
	p := poisonPattern(g)
	if whole || l.body <= poisonSpots*poisonSpot {
		return append(to, core.Region{Ptr: l.start(), Bytes: l.body, Pattern: p})
	}
	for _, at := range [...]uint64{0, (l.body - poisonSpot) / 2 &^ 7, l.body - poisonSpot} {
		to = append(to, core.Region{Ptr: l.start() + at, Bytes: poisonSpot, Pattern: p})
	}
	return to
}

// redPattern derives a red zone's pattern from whose it is and on which side,
// so a copy of another one does not pass. No byte is 0x00 or 0xFF: what stray
// writes most often write must differ from what was there.
func redPattern(g core.Generation, side zone) uint64 {
	x := mix(uint64(g)*4 + uint64(side))
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
	return nan | mix(uint64(g)*4+uint64(poisonZone))&mantissa | notZero
}

// mix is the finaliser of splitmix64: a bijection in which every input bit
// changes about half of the output bits.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
