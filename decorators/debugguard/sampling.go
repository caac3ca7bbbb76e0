package debugguard

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// rate is how many bytes go by between guarded blocks: samples are a Poisson process
// over the bytes with a given mean gap, and a block is chosen if at least one falls into
// it, so that each byte has the same chance. A mean of 1 chooses every block, of 0 none.
type rate struct {
	mean uint64
	// each is the part of 2^64 draws that choose a block for one byte, rounded up.
	each uint64
}

func rateOf(mean uint64) rate { return rate{mean, math.MaxUint64/max(mean, 2) + 1} }

// chooses draws for a block of so many bytes. It keeps no state between calls, so
// concurrent callers neither meet on it nor hide each other's blocks.
func (a rate) chooses(bytes uint64) bool {
	if a.mean <= 1 {
		return a.mean == 1
	}
	draw := rand.Uint64()
	if over, most := bits.Mul64(bytes, a.each); over == 0 && draw >= most { // more than the chance, and cheaper than it
		return false
	}
	return float64(draw>>11)*0x1p-53 < -math.Expm1(-float64(bytes)/float64(a.mean))
}

// SampleTag gives a tag a mean of its own between guarded bytes in mode
// Sample: 0 guards none of its blocks, 1 every one. A hunted tag stays hunted.
// It works from the next allocation on, in any mode, and does not block.
func (r *Resource) SampleTag(tag core.Tag, meanBytes uint64) {
	r.alter(func(u *rules) {
		rates := maps.Clone(u.rates)
		if rates == nil {
			rates = map[core.Tag]rate{}
		}
		rates[tag.OrUntagged()] = rateOf(meanBytes)
		u.rates = rates
	})
}

// ticksPerSecond is in how many steps the throttle counts.
const ticksPerSecond = uint64(time.Second / ledger.Tick)

// throttle bounds how many blocks are guarded in a second: a bucket that holds
// what comes in a tick, and one more. It keeps the time
// up to which what was taken is paid for, in units of which a tick has as many
// as a second has blocks, so that a block costs ticksPerSecond of them.
type throttle struct {
	perSecond uint64
	paid      atomic.Uint64
	_         [48]byte // keeps what every goroutine reads off the lines that each writes
	// left counts what was left out, by stream: of large blocks that is most.
	left [16]struct {
		out atomic.Uint64
		_   [56]byte
	}
}

// skipped is how many blocks were left out.
func (t *throttle) skipped() (n uint64) {
	for i := range t.left {
		n += t.left[i].out.Load()
	}
	return n
}

// allows reports whether one more block may be guarded, and takes it if so. A
// caller that loses a race for one is refused: others have just had theirs.
func (t *throttle) allows(tick uint64, stream core.StreamID) bool {
	at, was := tick*t.perSecond, t.paid.Load()
	paid := max(was, at) + ticksPerSecond
	if paid <= at+t.perSecond+ticksPerSecond && t.paid.CompareAndSwap(was, paid) {
		return true
	}
	t.left[uint64(stream)%uint64(len(t.left))].out.Add(1)
	return false
}

// SampleRate is how many blocks are guarded in a second at most in mode Sample,
// those of hunted tags and of tags with a mean of their own apart; 0 is no bound.
func (r *Resource) SampleRate() int {
	if r.rules.Load().unbounded {
		return 0
	}
	return int(r.throttle.perSecond)
}

// sampleBy makes mean the bytes between samples, for a caller that wants it kept
// whatever the time. Zero is what the guard was built with.
func (r *Resource) sampleBy(mean uint64) {
	r.alter(func(u *rules) {
		u.unbounded, u.sampling = mean != 0 || r.cfg.Advanced.SampleRate < 0, rateOf(cmp.Or(mean, r.cfg.SampleBytes))
	})
}
