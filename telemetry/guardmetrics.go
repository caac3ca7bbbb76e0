package telemetry

import "github.com/fencepost-gpu/fencepost/core"

// GuardStats is a snapshot of a debug guard for [Source]. It names its numbers
// itself, so that one more in the guard is one more row where it is filled in.
type GuardStats struct {
	// Modes are all modes in their order, Mode is the one now.
	Modes []string
	Mode  string
	// Quarantine is what the guard holds back from reuse.
	Quarantine core.Amount
	// Counts only grow; Levels are as they are now. Names are of the form
	// "ledger_blocks".
	Counts, Levels []GuardNumber
}

// GuardNumber is one number of a guard.
type GuardNumber struct {
	Name  string
	Value uint64
}

// IncidentStats is what became of the findings that were to be written to a
// folder.
type IncidentStats struct {
	// Written are in files; Omitted were repeats; Dropped found the queue
	// full; Failed could not be written; Removed files gave way to newer ones.
	Written, Omitted, Dropped, Failed, Removed uint64
}

var (
	guardMetrics = []definition{
		{name: MetricGuardMode, kind: gauge, labels: []string{"mode"}, help: "The debug guard's mode: 1 for the one it is in, 0 for the others."},
		{name: MetricGuardQuarantineBytes, kind: gauge, help: "Bytes that the guard's quarantine holds, padding included."},
		{name: MetricGuardQuarantineBlocks, kind: gauge, help: "Blocks that the guard's quarantine holds."},
		{name: MetricGuardEvents, kind: counter, labels: []string{"event"}, help: "What the guard did, by event.",
			note: "Blocks `guarded` and, for want of memory, `unguarded`; samples beyond so many in a second, `skipped`; those of a hunt `isolated` in a mapping of their own and `not_isolated`; comparisons `verified` and left out, `unchecked`; blocks `evicted` from quarantine, frees `retried` there, refusals `relieved` by giving it up, and the blocks `given_up` for that; what a capture kept off its stream, `captured`; launches that a hunt delayed, `delays`; `findings`."},
		{name: MetricGuardState, kind: gauge, labels: []string{"what"}, help: "What the guard keeps and awaits now.",
			note: "`ledger_blocks`, `tombstones`, batches of comparisons that are awaited (`checks`), frees held back by launches (`deferred`), canaries (`sentinels`) in the place of freed blocks, `hunted_tags`."},
	}
	incidentMetrics = []definition{
		{name: MetricIncidents, kind: counter, labels: []string{"outcome"}, help: "Incident files by outcome: written, omitted as repeats, dropped for a full queue, failed, or removed for newer ones."},
	}
)

func (s Source) collectGuard(out emitter) {
	st := s.Guard()
	for _, mode := range st.Modes {
		var is uint64
		if mode == st.Mode {
			is = 1
		}
		out.send(MetricGuardMode, is, mode)
	}
	out.send(MetricGuardQuarantineBytes, st.Quarantine.Bytes)
	out.send(MetricGuardQuarantineBlocks, st.Quarantine.Blocks)
	for _, n := range st.Counts {
		out.send(MetricGuardEvents, n.Value, n.Name)
	}
	for _, n := range st.Levels {
		out.send(MetricGuardState, n.Value, n.Name)
	}
}

func (s Source) collectIncidents(out emitter) {
	st := s.Incidents()
	out.send(MetricIncidents, st.Written, "written")
	out.send(MetricIncidents, st.Omitted, "omitted")
	out.send(MetricIncidents, st.Dropped, "dropped")
	out.send(MetricIncidents, st.Failed, "failed")
	out.send(MetricIncidents, st.Removed, "removed")
}
