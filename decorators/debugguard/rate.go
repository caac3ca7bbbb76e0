package debugguard

import (
	"math"
	"sync/atomic"
	"time"
)

// ticksPerSecond is how often the ledger's clock moves.
const ticksPerSecond = uint64(time.Second / resolution)

// throttle bounds how many blocks are guarded in a second: a bucket that holds
// what comes in a tick of the ledger's clock, and one more. It keeps the time
// up to which what was taken is paid for, in units of which a tick has as many
// as a second has blocks, so that a block costs ticksPerSecond of them.
type throttle struct {
	perSecond uint64
	// weight is for how many a block counts, 1 at least.
	weight uint64
	// off is set while nothing is bounded.
	off  atomic.Bool
	paid atomic.Uint64
	// skipped counts what was left out.
	skipped atomic.Uint64
}

// allows reports whether one more block may be guarded, and takes it if so. A
// caller that loses a race for one is refused: others have just had theirs.
func (t *throttle) allows(now instant) bool {
	if now == math.MaxUint32 { // where the clock stands still for good
		return true
	}
	at, was, cost := uint64(now)*t.perSecond, t.paid.Load(), ticksPerSecond*max(1, t.weight)
	paid := max(was, at) + cost
	if paid <= at+t.perSecond+cost && t.paid.CompareAndSwap(was, paid) {
		return true
	}
	t.skipped.Add(1)
	return false
}

// largeWeight is for how many bounded blocks one counts that is larger than
// [Config.PoisonCap]: with its red zones it does not fit where the last one of its
// size was, and the driver's pool has to find other memory, which takes
// milliseconds where a small block takes microseconds.
const largeWeight = 2000

// timeAllows decides whether a block that its bytes have chosen is guarded.
func (r *Resource) timeAllows(bytes uint64) bool {
	if r.throttle.off.Load() {
		return true
	}
	now := r.ledger.clock.instant()
	if bytes > r.cfg.PoisonCap {
		return r.large.allows(now) // so few that the others need not pay for them
	}
	return r.throttle.allows(now)
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
	r.bytes.setMean(orDefault(mean, r.cfg.SampleBytes))
}
