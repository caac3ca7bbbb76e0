package health

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// Reading is what the runtime's own numbers say at one moment.
type Reading struct {
	// These only grow: findings that degrade, see [Degrading]; requests for memory
	// and those refused for want of it; byte counters that went below zero; blocks
	// that the guard did not guard or check; and records, incidents and spans lost.
	Findings, Requests, Refusals, Underflows, Unguarded, Lost uint64
	// Poisoned is blocks that could not be fenced, Drift the bytes of the books less
	// those of the pool.
	Poisoned uint64
	Drift    int64
	// Guarding is whether the guard guards blocks.
	Guarding bool
	// Waiting is callers that wait while every stream is leased.
	Waiting int
}

// Sources are what the parts of a runtime say of themselves at one moment.
type Sources struct {
	Stats      core.Stats
	Guard      debugguard.GuardStats
	Streams    core.StreamStats
	Operations metrics.Operations
	Findings   *telemetry.Findings
	// Drift and Lost are those of [Reading].
	Drift int64
	Lost  uint64
}

// Reading is what the rules look at of all that.
func (s Sources) Reading() Reading {
	now := Reading{
		Findings:   Degrading(s.Findings),
		Unguarded:  s.Guard.Unchecked + s.Guard.Unguarded,
		Guarding:   s.Guard.Mode >= debugguard.Sample, // what is turned down leaves out what it had begun
		Underflows: s.Stats.Underflows,
		Poisoned:   s.Stats.Poisoned,
		Drift:      s.Drift,
		Lost:       s.Lost,
	}
	for _, op := range []core.Op{core.OpAllocate, core.OpReserve} {
		now.Requests += s.Operations.Calls(op)
	}
	now.Refusals = s.Operations.Refusals(metrics.ReasonOutOfBudget) + s.Operations.Refusals(metrics.ReasonOutOfMemory)
	if s.Streams.Leased >= s.Streams.Max {
		now.Waiting = s.Streams.Waiting
	}
	return now
}

// Degrading counts the findings but that of a lost device, which has a reason of
// its own, and those that harmed nothing or are not proven. It takes one
// snapshot: of two, the second may know of a loss that the first does not.
func Degrading(f *telemetry.Findings) (n uint64) {
	for kind, count := range f.Harmful() {
		if kind != core.FindingStickyError {
			n += count
		}
	}
	return n
}
