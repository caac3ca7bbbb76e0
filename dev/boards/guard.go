package boards

func guard() Board {
	return Board{
		File: "guard", Title: "Fencepost: guard and incidents",
		Description: "How well each runtime is, what memory bugs were found, what the debug guard does and holds, and what of the telemetry was lost.",
		Annotations: annotationsOf(),
		Rows:        []Row{guardHealth(), guardFindings(), guardWork(), guardFiles(), guardLosses()},
	}
}

func guardHealth() Row {
	return Row{Title: "Health", Panels: []Panel{
		{
			Title: "Health by runtime", Kind: StateTimeline, Unit: Count, Width: 12,
			Shows:  "The state that each runtime was in. Where there is nothing, no runtime ran.",
			Bad:    "Anything but ok.",
			Do:     "degraded: see the reasons to the right. poisoned: restart the process, then read its incident file.",
			States: healthStates,
			Queries: []Query{{Expr: `max by (instance, device) (gpumem_health{@, state="degraded"} or 2 * gpumem_health{@, state="poisoned"} or 3 * gpumem_health{@, state="closed"})`,
				Legend: "{{instance}} {{device}}", Proof: moves("lose", 2)}},
		},
		{
			Title: "Why not well", Kind: StateTimeline, Unit: Count, Width: 12, None: "none",
			Shows:   "Which reasons there were, and how many runtimes had each. A reason holds for some minutes after it was last seen.",
			Bad:     "A reason that stays, or one that many runtimes share since a release.",
			Do:      "docs/operate.md says of each reason what it means and what to do.",
			Levels:  []Level{{From: 1, Color: "orange"}},
			Queries: []Query{{Expr: `sum by (reason) (gpumem_health_reasons{@}) > 0`, Legend: "{{reason}}", Proof: moves("misuse", 1, "reason", "findings")}},
		},
		{
			Title: "What cannot be mended without a restart", Kind: TimeSeries, Unit: Count, Width: 24, Height: 6,
			Shows: "Blocks that could not be fenced and are out of use, lost devices, and how often a driver's error said so.",
			Bad:   "Anything above zero.",
			Do:    "Restart the process at the next chance; for a lost device at once.",
			Queries: []Query{
				{Expr: `sum(gpumem_blocks_poisoned{@})`, Legend: "poisoned blocks", Proof: moves("unfenced", 1)},
				{Expr: `sum(gpumem_device_lost{@})`, Legend: "lost devices", Proof: moves("lose", 1)},
				{Expr: `sum(gpumem_sticky_errors_total{@})`, Legend: "errors of lost devices", Proof: moves("lose", 1), Raw: "one is enough, and its process counts no further"},
			},
		},
	}}
}

func guardFindings() Row {
	return Row{Title: "Findings", Panels: []Panel{
		{
			Title: "Findings by kind", Kind: TimeSeries, Unit: Count, Width: 12, Stacked: true, None: "none",
			Shows:   "Memory bugs found since each process started, by kind.",
			Bad:     "A step. uaf-, oob-, stray- and underflow: memory is corrupt. missing-fence, undeclared-access: an order is missing. oom, leak: see the overview.",
			Do:      "Print the incident (fencepost incident FILE); docs/guard.md leads from it to the guilty launch.",
			Queries: []Query{{Expr: `sum by (kind) (gpumem_findings_total{@}) > 0`, Legend: "{{kind}}", Proof: moves("misuse", 1, "kind", "double-free"), Raw: "one finding a week must not vanish from the board"}},
		},
		{
			Title: "Findings by kind and victim", Kind: Table, Unit: Count, Width: 12, None: "none",
			Shows:   "The bugs found within the time range by the tag of the block that was harmed, of processes that have ended too.",
			Bad:     "One tag has most of them: the bug is at its neighbours or its users.",
			Do:      "Hunt that tag: fencepost guard --hunt-tag TAG.",
			Columns: []Column{{Label: "kind", Heading: "kind"}, {Label: "tag", Heading: "tag"}, {Label: "instance", Heading: "instance"}, {Label: "Value", Heading: "findings"}},
			Queries: []Query{{Expr: `sort_desc(sum by (instance, kind, tag) (max_over_time(gpumem_findings_total{@}[$__range])) > 0)`, Proof: moves("corrupt", 1, "kind", "oob-write", "tag", "victim"), Raw: "one finding a week must not vanish from the board"}},
		},
	}}
}

func guardWork() Row {
	return Row{Title: "The guard", Panels: []Panel{
		{
			Title: "Mode", Kind: StateTimeline, Unit: Count, Width: 12,
			Shows:  "The guard's mode of each runtime.",
			Bad:    "hunt on more hosts than you chose, or off where you rely on it.",
			Do:     "Switch it: fencepost guard sample.",
			States: []State{{"0", "off", "text"}, {"1", "ledger", "blue"}, {"2", "sample", "green"}, {"3", "hunt", "orange"}},
			Queries: []Query{{Expr: `max by (instance, device) (gpumem_guard_mode{@, mode="ledger"} or 2 * gpumem_guard_mode{@, mode="sample"} or 3 * gpumem_guard_mode{@, mode="hunt"})`,
				Legend: "{{instance}} {{device}}", Proof: moves("hunt", 2)}},
		},
		{
			Title: "Quarantine", Kind: TimeSeries, Unit: Bytes, Width: 12,
			Shows: "Freed memory that the guard holds back to watch it, and on the right-hand scale how many blocks that is.",
			Bad:   "It is a large part of the budget, or falls to nothing under load: then late writes are not seen.",
			Do:    "Size it: GuardConfig.QuarantineBytes. Falling to nothing means that the budget is too tight for it.",
			Queries: []Query{
				{Expr: `sum(gpumem_guard_quarantine_bytes{@})`, Legend: "bytes", Proof: moves("quarantine", 8*mib)},
				{Expr: `sum(gpumem_guard_quarantine_blocks{@})`, Legend: "blocks", RightUnit: Count, Proof: moves("quarantine", 8)},
			},
		},
		{
			Title: "What the guard does", Kind: TimeSeries, Unit: OpsASecond, Width: 24, None: "nothing",
			Shows:   "Its events a second: blocks guarded, compared, given up, and what it had to leave out.",
			Bad:     "unguarded, unchecked, relieved or given_up: it sees less than its mode says, for want of memory.",
			Do:      "Give the budget room for it, or lower its rate (sample:BYTES).",
			Queries: []Query{{Expr: `sum by (event) (rate(gpumem_guard_events_total{@}[$__rate_interval])) > 0`, Legend: "{{event}}", Proof: moves("hunt", 5, "event", "guarded")}},
		},
		{
			Title: "What the guard keeps", Kind: TimeSeries, Unit: Count, Width: 12, None: "nothing",
			Shows:   "Blocks in its ledger, freed blocks that it remembers, comparisons whose verdict is awaited, and more.",
			Bad:     "checks climbs: the device cannot keep up with the comparisons, and findings come late.",
			Do:      "Lower the tier, or hunt one tag only.",
			Queries: []Query{{Expr: `sum by (what) (gpumem_guard_state{@}) > 0`, Legend: "{{what}}", Proof: moves("leak", 3, "what", "ledger_blocks")}},
		},
		{
			Title: "Quarantine by tag", Kind: TimeSeries, Unit: Bytes, Width: 12, Stacked: true,
			Shows:   "Whose freed memory the guard holds back. It is not among the live memory of the tag.",
			Bad:     "One tag fills it: others' blocks leave before late writes to them show.",
			Do:      "Give that tag a rate of its own (Guard().SampleTag), or quarantine more room.",
			Queries: []Query{{Expr: `sum by (tag) (gpumem_tag_bytes{@, state="quarantined"})`, Legend: "{{tag}}", Proof: moves("quarantine", 8*mib, "tag", "freed")}},
		},
		{
			Title: "Padding", Kind: TimeSeries, Unit: Bytes, Width: 12,
			Shows:   "What live blocks have beyond what callers asked for: red zones.",
			Bad:     "It is a visible part of the live memory: many small blocks are guarded.",
			Do:      "Lower the rate or the red zones (GuardConfig.RedZone).",
			Queries: []Query{{Expr: `sum(gpumem_memory_bytes{@, state="live"}) - sum(gpumem_memory_requested_bytes{@, state="live"})`, Legend: "padding", Proof: moves("quarantine", 256)}},
		},
		{
			Title: "Memory of isolated blocks", Kind: TimeSeries, Unit: Bytes, Width: 12,
			Shows: "Blocks that hunt:unmap maps singly: what is mapped, the most that was, and address space without memory that freed ones keep.",
			Bad:   "It grows on a host that you did not mean to hunt on. Each block takes whole units of 2 MiB.",
			Do:    "Switch the guard back; the mappings go with their blocks.",
			Queries: []Query{
				{Expr: `sum(gpumem_isolated_bytes{@})`, Legend: "mapped", Proof: moves("isolate", mib)},
				{Expr: `sum(gpumem_isolated_peak_bytes{@})`, Legend: "most mapped", Proof: moves("isolate", mib)},
				{Expr: `sum(gpumem_isolated_address_bytes{@})`, Legend: "addresses only", Proof: moves("isolate", mib)},
			},
		},
	}}
}

func guardFiles() Row {
	return Row{Title: "Incidents and dumps", Panels: []Panel{
		{
			Title: "Incident files", Kind: TimeSeries, Unit: Count, Width: 12, None: "none",
			Shows:   "What became of findings since each process started: written, omitted as repeats, dropped, failed, or removed for newer ones.",
			Bad:     "failed or dropped: findings that nobody can read later. removed: the folder is full.",
			Do:      "Check the folder's space and rights (FENCEPOST_INCIDENTS); collect the files.",
			Queries: []Query{{Expr: `sum by (outcome) (gpumem_incidents_total{@}) > 0`, Legend: "{{outcome}}", Proof: moves("corrupt", 1, "outcome", "written"), Raw: "one file a week must not vanish from the board"}},
		},
		{
			Title: "Dumps of the history", Kind: TimeSeries, Unit: Count, Width: 12, None: "none",
			Shows:   "Dumps since each process started, by what triggered them and what came of them.",
			Bad:     "Many, or failed ones: something keeps going wrong, or the folder cannot be written.",
			Do:      "Read the newest; it has the operations before the trigger.",
			Queries: []Query{{Expr: `sum by (trigger, outcome) (gpumem_dumps_total{@}) > 0`, Legend: "{{trigger}}: {{outcome}}", Proof: moves("corrupt", 1, "trigger", "finding", "outcome", "written"), Raw: "one dump a week must not vanish from the board"}},
		},
	}}
}

func guardLosses() Row {
	return Row{Title: "What the telemetry lost", Panels: []Panel{
		{
			Title: "Spans", Kind: TimeSeries, Unit: OpsASecond, Width: 8, None: "nothing is traced",
			Shows: "Sampled spans a second: started, ended, accepted by the exporter, refused by it, and dropped for a full queue.",
			Bad:   "Exported falls below ended: traces have holes. Failed: the collector refuses or is away.",
			Do:    "Sample less or enlarge the exporter's queue; check the collector.",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_spans_started_total{@process}[$__rate_interval]))`, Legend: "started", Proof: moves("work", 30)},
				{Expr: `sum(rate(gpumem_spans_ended_total{@process}[$__rate_interval]))`, Legend: "ended", Proof: moves("work", 30)},
				{Expr: `sum(rate(gpumem_spans_exported_total{@process}[$__rate_interval]))`, Legend: "exported", Proof: moves("work", 30)},
				{Expr: `sum(rate(gpumem_spans_failed_total{@process}[$__rate_interval]))`, Legend: "failed", Proof: moves("failspans", 5)},
				{Expr: `sum(rate(gpumem_spans_dropped_total{@process}[$__rate_interval]))`, Legend: "dropped", Proof: moves("stuckspans", 5)},
			},
		},
		{
			Title: "Spans not exported yet", Kind: TimeSeries, Unit: Count, Width: 8, None: "nothing is traced",
			Shows:   "Spans that are queued or being exported.",
			Bad:     "It climbs to the size of the queue: the exporter does not keep up, and spans are about to be dropped.",
			Do:      "As for the spans to the left.",
			Queries: []Query{{Expr: `sum(gpumem_spans_unexported{@process})`, Legend: "not exported", Proof: moves("stuckspans", 1500)}},
		},
		{
			Title: "Log records and recorders", Kind: TimeSeries, Unit: Count, Width: 8,
			Shows: "Since each process started: log records dropped because a sink did not keep up, and launch recorders dropped without an end.",
			Bad:   "Records: the log has holes. Recorders: a program forgot Commit or Abort; the finding says where.",
			Do:    "Give the sink a larger queue or a faster disk; mend the launch that the finding names, or use Runtime.Launch.",
			Queries: []Query{
				{Expr: `sum(gpumem_log_records_dropped_total{@})`, Legend: "log records", Proof: moves("droplog", 20), Raw: "one loss a week must not vanish from the board"},
				{Expr: `sum(gpumem_recorders_dropped_total{@})`, Legend: "recorders", Proof: moves("recorder", 1), Raw: "one recorder a week must not vanish from the board"},
			},
		},
		{
			Title: "Records in the history", Kind: TimeSeries, Unit: OpsASecond, Width: 12,
			Shows:   "Records a second that the history in memory takes.",
			Bad:     "A rate that wraps the history within seconds: an incident shows little of what was before it.",
			Do:      "Enlarge it (FENCEPOST_HISTORY); to the right is how far back it reaches.",
			Queries: []Query{{Expr: `sum by (instance, device) (rate(gpumem_history_records_total{@}[$__rate_interval]))`, Legend: "{{instance}} {{device}}", Proof: moves("work", 30)}},
		},
		{
			Title: "How far back the history reaches", Kind: TimeSeries, Unit: Seconds, Width: 12,
			Shows:   "How long the history takes to be overwritten at the present rate.",
			Bad:     "Less than the time from a cause to its finding: some ten seconds.",
			Do:      "Enlarge it (FENCEPOST_HISTORY), or log less (LogLevel).",
			Queries: []Query{{Expr: `min by (instance, device) (gpumem_history_capacity{@} / rate(gpumem_history_records_total{@}[$__rate_interval]))`, Legend: "{{instance}} {{device}}", Proof: moves("work", -10)}},
		},
	}}
}
