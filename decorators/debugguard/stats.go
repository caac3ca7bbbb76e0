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

func raise(peak *atomic.Uint64, to int64) {
	for {
		old := peak.Load()
		if to <= int64(old) || peak.CompareAndSwap(old, uint64(to)) {
			return
		}
	}
}

// Stats is the upstream's, seen from above the guard: what quarantine and
// canaries hold is Quarantined and not Live, what an open intent keeps from being freed is
// Pending, and both count as deallocated. Refusals and failures that were
// cured are left out, and so are the guard's own launches, while the waits
// that these queued are real and stay in. Sizes in bytes include the red
// zones. The peaks are the upstream's: PeakOutstanding counts what was held back,
// which was real memory; PeakBytes and PeakRequested do not where the layers
// below are [core.Withholder], as all of the project's are.
func (r *Resource) Stats() core.Stats {
	launches, aborts, crossings := r.count.ownLaunches.Load(), r.count.ownAborts.Load(), r.count.ownCrossings.Load()
	refusals, failures := r.count.hiddenRefusals.Load(), r.count.hiddenFailures.Load()
	made, gone := r.canaries.made.Load(), r.canaries.freed.Load()
	s := r.upstream.Stats()
	quarantined, deferred, canaries := r.quarantine.size(), r.deferred.amount(), r.canaries.memory.amount()

	s.Live = s.Live.Sub(quarantined).Sub(deferred).Sub(canaries)
	s.Quarantined = s.Quarantined.Add(quarantined).Add(canaries)
	s.Allocations = less(s.Allocations, made)
	s.Deallocations = less(s.Deallocations, gone)
	s.Pending = s.Pending.Add(deferred)
	s.Deallocations += quarantined.Blocks + deferred.Blocks
	s.Launches = less(s.Launches, launches)
	s.Aborts = less(s.Aborts, aborts)
	s.CrossStream = less(s.CrossStream, crossings)
	s.Refusals = less(s.Refusals, refusals)
	s.Failures = less(s.Failures, failures)
	return s
}

func less(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

// Withhold passes on what a guard above withholds.
func (r *Resource) Withhold(id core.BlockID, as core.BlockState) {
	if rec := r.ledger.lock(id); rec != nil {
		if rec.guard != nil {
			id = rec.inner()
		}
		rec.mu.Unlock()
	}
	r.below.Withhold(id, as)
}
