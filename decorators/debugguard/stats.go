package debugguard

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// tally is an amount that changes under concurrent use. It is exact when the
// guard is quiet.
type tally struct{ bytes, requested, blocks atomic.Int64 }

func (t *tally) add(a core.Amount) {
	t.bytes.Add(int64(a.Bytes))
	t.requested.Add(int64(a.Requested))
	t.blocks.Add(int64(a.Blocks))
}

func (t *tally) sub(a core.Amount) {
	t.bytes.Add(-int64(a.Bytes))
	t.requested.Add(-int64(a.Requested))
	t.blocks.Add(-int64(a.Blocks))
}

func (t *tally) amount() core.Amount {
	return core.Amount{Bytes: unsigned(t.bytes.Load()), Requested: unsigned(t.requested.Load()), Blocks: unsigned(t.blocks.Load())}
}

func unsigned(n int64) uint64 { return uint64(max(n, 0)) }

// meter follows the requested bytes that callers have live while the guard is
// at work, because the upstream's peak counts what is held back as live. It is
// used only once something was; until then the upstream's peak is right, and it
// runs only in the modes in which something may be.
type meter struct {
	requested atomic.Int64
	peak      atomic.Uint64
	heldBack  atomic.Bool
}

// rebase starts from what the upstream has live.
func (m *meter) rebase(s core.Stats) {
	m.requested.Store(int64(s.Live.Requested))
	if m.heldBack.Load() {
		s.PeakRequested = s.Live.Requested
	}
	raise(&m.peak, int64(s.PeakRequested))
}

func (m *meter) add(requested uint64) { raise(&m.peak, m.requested.Add(int64(requested))) }
func (m *meter) sub(requested uint64) { m.requested.Add(-int64(requested)) }

func raise(peak *atomic.Uint64, to int64) {
	for {
		old := peak.Load()
		if to <= int64(old) || peak.CompareAndSwap(old, uint64(to)) {
			return
		}
	}
}

// Stats is the upstream's, seen from above the guard: what quarantine and
// sentinels hold is Quarantined and not Live, what an open intent keeps from being freed is
// Pending, and both count as deallocated. Refusals and failures that were
// cured are left out, and so are the guard's own launches, while the waits
// that these queued are real and stay in. Sizes in bytes include the red
// zones. PeakBytes is the upstream's: it counts what was held back, which was
// real memory. After something was, PeakRequested is of what callers had live
// while the guard was at work; what passed it in mode Off since is known only
// as far as it is live now.
func (r *Resource) Stats() core.Stats {
	launches, aborts, crossings := r.count.ownLaunches.Load(), r.count.ownAborts.Load(), r.count.ownCrossings.Load()
	refusals, failures := r.count.hiddenRefusals.Load(), r.count.hiddenFailures.Load()
	made, gone := r.sentinels.made.Load(), r.sentinels.freed.Load()
	s := r.upstream.Stats()
	quarantined, deferred, sentinels := r.quarantine.size(), r.deferred.amount(), r.sentinels.held.amount()

	s.Live = s.Live.Sub(quarantined).Sub(deferred).Sub(sentinels)
	s.Quarantined = s.Quarantined.Add(quarantined).Add(sentinels)
	s.Allocations = less(s.Allocations, made)
	s.Deallocations = less(s.Deallocations, gone)
	s.Pending = s.Pending.Add(deferred)
	s.Deallocations += quarantined.Blocks + deferred.Blocks
	s.Launches = less(s.Launches, launches)
	s.Aborts = less(s.Aborts, aborts)
	s.CrossStream = less(s.CrossStream, crossings)
	s.Refusals = less(s.Refusals, refusals)
	s.Failures = less(s.Failures, failures)
	if r.meter.heldBack.Load() {
		s.PeakRequested = max(r.meter.peak.Load(), s.Live.Requested)
	}
	return s
}

func less(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}
