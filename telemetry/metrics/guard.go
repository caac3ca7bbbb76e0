package metrics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

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
	Counts, Levels map[string]uint64
}

var guardMetrics = []family[GuardStats]{
	{gauge("gpumem_guard_mode", "The debug guard's mode: 1 for the one it is in, 0 for the others.", "mode"), sendMode},
	{gauge("gpumem_guard_quarantine_bytes", "Bytes that the guard's quarantine holds, padding included."), whole(func(g GuardStats) uint64 { return g.Quarantine.Bytes })},
	{gauge("gpumem_guard_quarantine_blocks", "Blocks that the guard's quarantine holds."), whole(func(g GuardStats) uint64 { return g.Quarantine.Blocks })},
	{counter("gpumem_guard_events_total", "What the guard did, by event.", "event"), func(g GuardStats, out sender) { sendNumbers(g.Counts, out) }},
	{gauge("gpumem_guard_state", "What the guard keeps and awaits now.", "what"), func(g GuardStats, out sender) { sendNumbers(g.Levels, out) }},
}

func sendMode(g GuardStats, out sender) {
	oneOf(out, g.Modes, func(mode string) bool { return mode == g.Mode })
}

func sendNumbers(numbers map[string]uint64, out sender) {
	for name, n := range numbers {
		out.count(n, name)
	}
}

// TagFindings is how many findings of a kind have a victim of that tag.
type TagFindings struct {
	Kind  core.FindingKind
	Tag   core.Tag
	Count uint64
}

var findingMetrics = family[[]TagFindings]{counter("gpumem_findings_total", "Memory bugs found, by kind and tag of the victim; the first tags, the rest as other.", "kind", "tag"), sendFindings}

// sendFindings sends each kind that has no findings too, so that an alert sees the first
// increase, under the tag of untagged blocks: the sum over tags is what an alert looks at.
func sendFindings(findings []TagFindings, out sender) {
	type series struct{ kind, tag string }
	counts, present := map[series]uint64{}, map[string]bool{}
	for _, c := range findings { // labels that become equal are one series
		key := series{strings.ToValidUTF8(string(c.Kind), "\uFFFD"), strings.ToValidUTF8(string(c.Tag), "\uFFFD")}
		counts[key] += c.Count
		present[key.kind] = true
	}
	for _, kind := range names.FindingKinds {
		if !present[kind] {
			counts[series{kind, names.Untagged}] = 0
		}
	}
	for key, n := range counts {
		out.count(n, key.kind, key.tag)
	}
}

var incidentMetrics = family[incident.Stats]{counter("gpumem_incidents_total", "Incident files by outcome: written, omitted as repeats, dropped for a full queue, failed, or removed for newer ones.", "outcome"), sendIncidents}

func sendIncidents(s incident.Stats, out sender) {
	out.count(s.Written, "written")
	out.count(s.Omitted, "omitted")
	out.count(s.Dropped, "dropped")
	out.count(s.Failed, "failed")
	out.count(s.Removed, "removed")
}

var dumpMetrics = family[[]dump.Count]{counter("gpumem_dumps_total", "Dumps of the history by what caused them and what became of them: written, limited because there was one shortly before, or failed.", "trigger", "outcome"), sendDumps}

func sendDumps(counts []dump.Count, out sender) {
	for _, c := range counts {
		out.count(c.Count, string(c.Trigger), string(c.Outcome))
	}
}

var waitingMetrics = family[int]{gauge("gpumem_budget_waiting", "Jobs that wait for their reservation."), func(n int, out sender) { out.count(uint64(n)) }}

var logMetrics = family[uint64]{counter("gpumem_log_records_dropped_total", "Log records dropped because a sink could not keep up."), itself}

var recorderMetrics = family[uint64]{counter("gpumem_recorders_dropped_total", "Launch recorders dropped without a commit or an abort."), itself}

var stickyMetrics = family[uint64]{counter("gpumem_sticky_errors_total", "Driver errors seen that lose the device's context for the rest of the process; one lost device may answer with many, see gpumem_device_lost."), itself}

var healthMetrics = []family[core.Health]{
	{gauge("gpumem_health", "How well the runtime is: 1 for the state it is in, 0 for the others.", "state"), sendHealth},
	{gauge("gpumem_health_reasons", "Why the runtime is not well: 1 for each reason that holds, 0 for the others.", "reason"), sendReasons},
	{gauge("gpumem_unwell_since_timestamp_seconds", "Since when the reasons hold for which the runtime is not well: when the first of them began. Left out while none holds."), sendSince},
	{gauge("gpumem_device_lost", "1 if the device's context is lost for the rest of the process, however many errors said so, or else 0."),
		whole(func(h core.Health) uint64 { return oneIf(h.State == names.HealthPoisoned) })},
}

func sendHealth(h core.Health, out sender) {
	oneOf(out, names.HealthStates[:], func(state string) bool { return state == cmp.Or(h.State, names.HealthOK) })
}

func sendSince(h core.Health, out sender) {
	var first time.Time
	for _, s := range h.Signs {
		if first.IsZero() || s.Since.Before(first) {
			first = s.Since
		}
	}
	out.instant(first)
}

func sendReasons(h core.Health, out sender) {
	oneOf(out, names.HealthReasons[:], func(reason string) bool {
		return slices.ContainsFunc(h.Signs, func(s core.HealthSign) bool { return s.Reason == reason })
	})
}
