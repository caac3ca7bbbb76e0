package debugguard

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// chosen draws for a block of so many bytes, so that each byte has the same chance:
// samples are a Poisson process over the bytes with a given mean gap, and a block is
// chosen if at least one falls into it. A mean of 1 chooses every block, of 0 none. It
// keeps no state between calls, so concurrent callers neither meet on it nor hide each
// other's blocks.
func chosen(bytes, mean uint64) bool {
	if mean <= 1 {
		return mean == 1
	}
	samples := float64(bytes) / float64(mean)
	draw := rand.Float64()
	if draw >= samples { // more than the chance, and cheaper than it
		return false
	}
	return draw < -math.Expm1(-samples)
}

// SampleTag gives a tag a mean of its own between guarded bytes in mode
// Sample: 0 guards none of its blocks, 1 every one. A hunted tag stays hunted.
// It works from the next allocation on, in any mode, and does not block.
func (r *Resource) SampleTag(tag core.Tag, meanBytes uint64) {
	for {
		old := r.rates.Load()
		rates := maps.Clone(*old)
		rates[tag.OrUntagged()] = meanBytes
		if r.rates.CompareAndSwap(old, &rates) {
			return
		}
	}
}

// ticksPerSecond is how often the ledger's clock moves.
const ticksPerSecond = uint64(time.Second / ledger.Resolution)

// throttle bounds how many blocks are guarded in a second: a bucket that holds
// what comes in a tick of the ledger's clock, and one more. It keeps the time
// up to which what was taken is paid for, in units of which a tick has as many
// as a second has blocks, so that a block costs ticksPerSecond of them.
type throttle struct {
	perSecond uint64
	// off is set while nothing is bounded.
	off  atomic.Bool
	paid atomic.Uint64
	// skipped counts what was left out.
	skipped atomic.Uint64
}

// allows reports whether one more block may be guarded, and takes it if so. A
// caller that loses a race for one is refused: others have just had theirs.
func (t *throttle) allows(now ledger.Instant) bool {
	if now == math.MaxUint32 { // where the clock stands still for good
		return true
	}
	at, was := uint64(now)*t.perSecond, t.paid.Load()
	paid := max(was, at) + ticksPerSecond
	if paid <= at+t.perSecond+ticksPerSecond && t.paid.CompareAndSwap(was, paid) {
		return true
	}
	t.skipped.Add(1)
	return false
}

// timeAllows decides whether a block that its bytes have chosen is guarded.
func (r *Resource) timeAllows() bool {
	return r.throttle.off.Load() || r.throttle.allows(r.ledger.Clock.Instant())
}

// SampleRate is how many blocks are guarded in a second at most in mode Sample,
// those of hunted tags and of tags with a mean of their own apart; 0 is no bound.
func (r *Resource) SampleRate() int {
	if r.throttle.off.Load() {
		return 0
	}
	return int(r.throttle.perSecond)
}

// sampleBy makes mean the bytes between samples, said by whoever wants it kept
// to whatever the time. Zero is what the guard was built with.
func (r *Resource) sampleBy(mean uint64) {
	r.throttle.off.Store(mean != 0 || r.cfg.SampleRate < 0)
	r.sampleBytes.Store(cmp.Or(mean, r.cfg.SampleBytes))
}
