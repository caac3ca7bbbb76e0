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

func raise(peak *atomic.Uint64, to uint64) {
	for {
		old := peak.Load()
		if to <= old || peak.CompareAndSwap(old, to) {
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
// which was real memory; PeakBytes and PeakRequested do not.
func (r *Resource) Stats() core.Stats {
	launches, aborts, crossings := r.count.ownLaunches.Load(), r.count.ownAborts.Load(), r.count.ownCrossings.Load()
	refusals, failures := r.count.hiddenRefusals.Load(), r.count.hiddenFailures.Load()
	made, gone := r.canaries.made.Load(), r.canaries.freed.Load()
	s := r.upstream.Stats()
	quarantined, blocked, canaries := r.quarantine.queue.size(), r.blockedFrees.amount(), r.canaries.queue.size()

	s.Live = s.Live.Sub(quarantined).Sub(blocked).Sub(canaries)
	s.Quarantined = s.Quarantined.Add(quarantined).Add(canaries)
	s.Allocations = less(s.Allocations, made)
	s.Deallocations = less(s.Deallocations, gone)
	s.Pending = s.Pending.Add(blocked)
	s.Deallocations += quarantined.Blocks + blocked.Blocks
	s.Launches = less(s.Launches, launches)
	s.Aborts = less(s.Aborts, aborts)
	s.CrossStream = less(s.CrossStream, crossings)
	s.Refusals = less(s.Refusals, refusals)
	s.Failures = less(s.Failures, failures)
	r.path.Room().AddTo(&s, r)
	return s
}

// less is a-b, or zero if b is more.
func less(a, b uint64) uint64 { return max(a, b) - b }

// Withhold passes on what a guard above withholds.
func (r *Resource) Withhold(id core.BlockID, as core.BlockState) {
	if rec := r.ledger.Lock(id); rec != nil {
		if rec.Guard != nil {
			id = rec.Inner()
		}
		rec.Unlock()
	}
	r.upstream.Withhold(id, as)
}

// counters only grow.
type counters struct {
	guarded, unguarded, verified, unchecked atomic.Uint64
	findings, evicted, retried              atomic.Uint64
	ownLaunches, ownAborts, ownCrossings    atomic.Uint64
	hiddenRefusals, hiddenFailures          atomic.Uint64
	captured, draws, delays                 atomic.Uint64
	isolated, notIsolated                   atomic.Uint64
}

// GuardStats is what the guard did and holds.
type GuardStats struct {
	Mode Mode
	// Guarded counts the blocks allocated between red zones, Unguarded those
	// chosen for it that were handed out without, for want of memory.
	Guarded, Unguarded uint64
	// Skipped counts the blocks that were chosen by their bytes and left out
	// because Config.SampleRate blocks had been guarded in that second.
	Skipped uint64
	// Isolated counts those of them that got a mapping of their own,
	// NotIsolated those that a hunt wanted one for and that are quarantined
	// like all others: the upstream has none, or had no memory for it.
	Isolated, NotIsolated uint64
	// Verified counts comparisons of a block that the device has done,
	// Unchecked the armings and comparisons of a block that were left out:
	// the layers below refused, or the guard had been turned off.
	Verified, Unchecked uint64
	// Findings counts what was found, reported or not.
	Findings uint64
	// Relieved counts refusals that giving up quarantine cured.
	Relieved uint64
	// GivenUp is what quarantine and canaries held of the device that was
	// given up so that a caller need not be told no.
	GivenUp core.Amount
	// Evicted counts blocks that left quarantine, Retried frees that failed
	// there and left the block in it.
	Evicted, Retried uint64
	// Captured counts accesses of the guard's that were not put on their
	// stream because it captures. They were done on the default stream, or
	// left out if that could not be either; delays are always left out.
	Captured uint64
	// Delays counts launches that a hunt has delayed on the device.
	Delays uint64
	// Quarantine is what quarantine holds now, BlockedFrees the freed blocks that
	// open intents use.
	Quarantine, BlockedFrees core.Amount
	// Canaries is the part of Quarantine that is the guard's own blocks.
	Canaries core.Amount
	// Checks is the number of batches whose verdict is awaited.
	Checks uint64
	// Known is the number of blocks in the ledger, Tombstones that of freed
	// ones it remembers. A guarded block counts as known until it is released,
	// any other until it is freed.
	Known, Tombstones uint64
}

// GuardStats is a snapshot of the guard's own numbers. It makes no device
// call; it counts the ledger, so it is for reports and scrapes and not for
// every operation.
func (r *Resource) GuardStats() GuardStats {
	live, tombstones := r.ledger.Size()
	return GuardStats{
		Mode:      r.Mode(),
		Guarded:   r.count.guarded.Load(),
		Unguarded: r.count.unguarded.Load(),
		Skipped:   r.throttle.skipped(),
		Isolated:  r.count.isolated.Load(), NotIsolated: r.count.notIsolated.Load(),
		Verified:     r.count.verified.Load(),
		Unchecked:    r.count.unchecked.Load(),
		Findings:     r.count.findings.Load(),
		Relieved:     r.path.Room().Relieved(),
		Evicted:      r.count.evicted.Load(),
		Retried:      r.count.retried.Load(),
		Captured:     r.count.captured.Load(),
		Delays:       r.count.delays.Load(),
		GivenUp:      r.givenUp.amount(),
		Quarantine:   r.quarantine.queue.size().Add(r.canaries.queue.size()),
		Canaries:     r.canaries.queue.size(),
		BlockedFrees: r.blockedFrees.amount(),
		Checks:       uint64(r.checks.awaited()),
		Known:        uint64(live),
		Tombstones:   uint64(tombstones),
	}
}
