package boards

import "github.com/grafana/grafana-foundation-sdk/go/units"

var guard = Board{
	File: "guard", Title: "Fencepost: guard and incidents",
	Description: "How well each runtime is, what memory bugs were found, what the debug guard does and holds, and what of the telemetry was lost.",
	Annotations: annotations,
	Panels: []Panel{
		{Row: "Health", Title: "Health by runtime", Kind: StateTimeline, Unit: units.Short, Width: 12,
			Shows:  "The states that runtimes were in: of the five that were worst in the time range. Where there is nothing, no runtime ran.",
			Bad:    "Anything but ok.",
			Do:     "degraded: see the reasons to the right. poisoned: restart the process, then read its incident file.",
			States: healthStates,
			Queries: []Query{{Expr: largest(5, "instance, device", `max by (instance, device) (`+healthNumber+`)`),
				Legend: "{{instance}} {{device}}", Proof: moves("lose", 2)}}},
		{Title: "Why not well", Kind: StateTimeline, Unit: units.Short, Width: 12,
			Shows:  "Which reasons runtimes had not to be well, five of them. A reason holds for some minutes after it was last seen. Where there was none, the line is of those that are well.",
			Bad:    "A reason that stays, or one that many runtimes share since a release.",
			Do:     OperatePage + " says of each reason what it means and what to do.",
			States: []State{{"0", "all are well", "green"}, {"1", "holds", "orange"}},
			Queries: []Query{{Expr: largest(5, "instance, device, reason", `max by (instance, device, reason) (gpumem_health_reasons{@}) == 1`) + ` or on () label_replace(0 * count(gpumem_health{@, state="ok"}), "reason", "none", "", "")`,
				Legend: "{{instance}} {{device}} {{reason}}", Proof: moves("misuse", 1, "reason", "findings")}}},
		{Row: "Findings", Title: "Findings by kind", Kind: TimeSeries, Unit: units.Short, Width: 12, Stacked: true, None: "none",
			Shows: "Memory bugs found since each process started, by kind: the seven of which there are most. Requests that the device could not serve are refusals, on the overview.",
			Bad:   "A step. uaf-, oob-, stray- and underflow: memory is corrupt. missing-fence, undeclared-access: an order is missing. leak: see the overview.",
			Do:    "Print the incident (fencepost incident FILE); docs/guard.md leads from it to the guilty launch.",
			Queries: []Query{
				{Expr: largest(7, "kind", `sum by (kind) (gpumem_findings_total{@, kind!="oom"}) > 0`), Legend: "{{kind}}", Proof: moves("misuse", 1, "kind", "double-free"), Raw: "one finding a week must not vanish from the board"}}},
		{Title: "Findings by kind and victim", Kind: Table, Unit: units.Short, Width: 12, None: "none", Largest: []string{"findings"},
			Shows:   "The bugs found within the time range by the tag of the block that was harmed, of processes that have ended too.",
			Bad:     "One tag has most of them: the bug is at its neighbours or its users.",
			Do:      "Hunt that tag: fencepost guard --hunt-tag TAG.",
			Columns: []Column{{Label: "kind", Heading: "kind", Width: 130}, {Label: "tag", Heading: "tag", Width: 160}, {Label: "instance", Heading: "instance", Width: 150, Links: toBoards}, {Label: "device", Heading: "device"}, {Label: "Value", Heading: "findings"}},
			Queries: []Query{{Expr: found(` by (instance, device, kind, tag)`, `kind!="oom"`) + ` > 0`, Proof: moves("corrupt", 1, "kind", "oob-write", "tag", "victim"), Raw: newFindings}}},
		{Row: "The guard", Title: "Mode", Kind: StateTimeline, Unit: units.Short, Width: 12,
			Shows:  "The guard's mode of the five runtimes of which it was highest.",
			Bad:    "hunt on more hosts than you chose, or off where you rely on it.",
			Do:     "Switch it: fencepost guard sample.",
			States: []State{{"0", "off", "text"}, {"1", "ledger", "blue"}, {"2", "sample", "green"}, {"3", "hunt", "orange"}},
			Queries: []Query{{Expr: largest(5, "instance, device", `max by (instance, device) (gpumem_guard_mode{@, mode="ledger"} or 2 * gpumem_guard_mode{@, mode="sample"} or 3 * gpumem_guard_mode{@, mode="hunt"})`),
				Legend: "{{instance}} {{device}}", Proof: moves("hunt", 2)}}},
		{Title: "Quarantine", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, Stacked: true, None: "nothing is held back",
			Shows: "Freed memory that the guard holds back to watch it, by tag; the five largest, and the others. It is not among the live memory of the tag.",
			Bad:   "It is a large part of the budget, or falls to nothing under load: then late writes are not seen. One tag fills it: others' blocks leave before late writes to them show.",
			Do:    "Size it: GuardConfig.QuarantineBytes. Falling to nothing means that the budget is too tight for it. Against one tag: give it a rate of its own (Guard().SampleTag).",
			Queries: []Query{
				{Expr: largest(5, "tag", quarantined), Legend: "{{tag}}", Proof: moves("quarantine", 8*mib, "tag", "freed")},
				{Expr: others(5, "tag", quarantined), Legend: "others", Proof: moves("quarantine", 3*mib)}}},
		{Title: "What the guard does", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12, None: "nothing",
			Shows: "Its events a second: blocks guarded, compared, evicted, the five that are most; and what it had to leave out or give up.",
			Bad:   "Left out or given up: it sees less than its mode says, for want of memory.",
			Do:    "Give the budget room for it, or lower its rate (sample:BYTES).",
			Queries: []Query{
				{Expr: largest(5, "event", `sum by (event) (rate(gpumem_guard_events_total{@, event!~"`+blindSpots+`"}[$__rate_interval])) > 0`), Legend: "{{event}}", Proof: moves("hunt", 5, "event", "guarded")},
				{Expr: `sum by (event) (rate(gpumem_guard_events_total{@, event=~"` + blindSpots + `"}[$__rate_interval])) > 0`, Legend: "{{event}}", Proof: moves("pressure", 1, "event", "relieved")}}},
		{Title: "What the guard keeps", Kind: TimeSeries, Unit: units.Short, Width: 12, None: "nothing",
			Shows:   "Blocks in its ledger, freed blocks that it remembers, comparisons whose verdict is awaited, and more; the seven that are most.",
			Bad:     "checks climbs: the device cannot keep up with the comparisons, and findings come late.",
			Do:      "Lower the tier, or hunt one tag only.",
			Queries: []Query{{Expr: largest(7, "what", `sum by (what) (gpumem_guard_state{@}) > 0`), Legend: "{{what}}", Proof: moves("leak", 3, "what", "ledger_blocks")}}},
		{Row: "Incidents, and what the telemetry lost", Title: "Incident files and dumps", Kind: TimeSeries, Unit: units.Short, Width: 12, None: "none",
			Shows: "Since each process started, what became of findings (written, omitted as repeats, dropped, failed, or removed for newer ones), and of dumps of the history.",
			Bad:   "failed or dropped: findings that cannot be read later. removed: the folder is full. Many dumps: something keeps going wrong.",
			Do:    "Check the folder's space and rights (FENCEPOST_INCIDENTS); collect the files. The newest dump has the operations before its trigger.",
			Queries: []Query{
				{Expr: `sum by (outcome) (gpumem_incidents_total{@}) > 0`, Legend: "incidents: {{outcome}}", Proof: moves("corrupt", 1, "outcome", "written"), Raw: "one file a week must not vanish from the board"},
				{Expr: `sum by (outcome) (gpumem_dumps_total{@}) > 0`, Legend: "dumps: {{outcome}}", Proof: moves("corrupt", 1, "outcome", "written"), Raw: "one dump a week must not vanish from the board"}}},
		{Title: "How far back the history reaches", Kind: TimeSeries, Unit: units.Seconds, Width: 12, Log: true, None: "nothing is recorded",
			Shows:   "How long the history takes to be overwritten at the present rate: the five shortest.",
			Bad:     "Less than the time from a cause to its finding: some ten seconds.",
			Do:      "Enlarge it (FENCEPOST_HISTORY), or log less (LogLevel).",
			Queries: []Query{{Expr: smallest(5, "instance, device", `min by (instance, device) (gpumem_history_capacity{@} / (rate(gpumem_history_records_total{@}[$__rate_interval]) > 0))`), Legend: "{{instance}} {{device}}", Proof: moves("work", -10)}}},
		{Title: "Spans", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12, None: "nothing is traced",
			Shows: "Sampled spans a second: ended, accepted by the exporter, refused by it, and dropped for a full queue; on the right those that are queued or being exported.",
			Bad:   "Exported falls below ended: traces have holes. Failed: the collector refuses or is away. The queue climbs to its size: spans are about to be dropped.",
			Do:    "Sample less or enlarge the exporter's queue; check the collector.",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_spans_ended_total{@process}[$__rate_interval]))`, Legend: "ended", Proof: moves("work", 30)},
				{Expr: `sum(rate(gpumem_spans_exported_total{@process}[$__rate_interval]))`, Legend: "exported", Proof: moves("work", 30)},
				{Expr: `sum(rate(gpumem_spans_failed_total{@process}[$__rate_interval]))`, Legend: "failed", Proof: moves("failspans", 5)},
				{Expr: `sum(rate(gpumem_spans_dropped_total{@process}[$__rate_interval]))`, Legend: "dropped", Proof: moves("stuckspans", 5)},
				{Expr: `sum(gpumem_spans_unexported{@process})`, Legend: "not exported yet", RightUnit: units.Short, Proof: moves("stuckspans", 1500)}}},
	},
}

const (
	quarantined = `sum by (tag) (gpumem_tag_bytes{@, state="quarantined"}) > 0`
	// blindSpots are the events at which the guard sees less than its mode says.
	blindSpots = `unguarded|unchecked|relieved|given_up`
)
