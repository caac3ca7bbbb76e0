package fencepost

import (
	"fmt"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// Health is how well the runtime is: ok; degraded, with the reasons; closed; or
// poisoned, when a sticky error lost the device and every call is refused. See
// docs/health.md for when each reason begins and ends. It makes no device call
// and takes no lock: what it says of reasons is at most a second old, and that
// the device is lost or the runtime closed it says at once.
func (r *Runtime) Health() core.Health {
	h := r.Runtime.Health()
	signs := r.health.signs.Load()
	switch {
	case signs == nil || len(*signs) == 0 || h.State == core.HealthClosed:
	case h.State == core.HealthPoisoned:
		h.Signs = append(h.Signs[:1:1], *signs...)
	default:
		h.State, h.Signs, h.Reason = core.HealthDegraded, *signs, textOf(*signs)
	}
	return h
}

func textOf(signs []core.HealthSign) string {
	texts := make([]string, len(signs))
	for i, s := range signs {
		texts[i] = string(s.Reason) + ": " + s.Text
	}
	return strings.Join(texts, "; ")
}

// healthReading is what the runtime's own numbers say at one moment.
type healthReading struct {
	// These only grow.
	findings, requests, refusals, underflows, unguarded, lost uint64
	// poisoned is blocks, drift bytes of the books less those of the pool.
	poisoned uint64
	drift    int64
	// guarding is whether the guard guards blocks.
	guarding bool
	// waiting is callers that wait while every stream is leased.
	waiting int
}

// readHealth reads the numbers. It makes no device call.
func (r *Runtime) readHealth() healthReading {
	stats, guard, streams, ops := r.Stats(), r.guard.GuardStats(), r.streams.Stats(), r.observer.Operations()
	now := healthReading{
		findings:   degrading(r.findings),
		unguarded:  guard.Unchecked + guard.Unguarded,
		guarding:   guard.Mode >= debugguard.Sample, // what is turned down leaves out what it had begun
		underflows: stats.Underflows,
		poisoned:   stats.Poisoned,
		drift:      r.DeviceMemory().Drift,
		lost:       r.lostTelemetry(),
	}
	for _, op := range []core.Op{core.OpAllocate, core.OpReserve} {
		now.requests += ops.Succeeded(op)
		for _, reason := range telemetry.Reasons() {
			now.requests += ops.Failed(op, reason)
		}
	}
	now.refusals = ops.Refusals(telemetry.ReasonOutOfBudget) + ops.Refusals(telemetry.ReasonOutOfMemory)
	if streams.Leased >= streams.Max {
		now.waiting = streams.Waiting
	}
	return now
}

// degrading counts the findings but that of a lost device, which has a reason of
// its own, and those that harmed nothing or are not proven. It takes one
// snapshot: of two, the second may know of a loss that the first does not.
func degrading(f *telemetry.Findings) (n uint64) {
	for kind, count := range f.Harmful() {
		if kind != core.FindingStickyError {
			n += count
		}
	}
	return n
}

func (r *Runtime) lostTelemetry() uint64 {
	lost := r.log.Dropped()
	if r.incidents != nil {
		st := r.incidents.Stats()
		lost += st.Dropped + st.Failed + r.dumps.Failures()
	}
	if r.health.lost != nil {
		lost += r.health.lost()
	}
	return lost
}

// plural is "1 finding" or "2 findings".
func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
