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
	return r.throttle.off.Load() || r.throttle.allows(r.ledger.clock.instant())
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
