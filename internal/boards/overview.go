package boards

const mib = 1 << 20

func overview() Board {
	return Board{
		File: "overview", Title: "Fencepost: overview",
		Description: "Who holds the device's memory, whether it grows without reason, what cannot be used again yet, and why requests are refused.",
		Rows:        []Row{overviewNow(), overviewHolders(), overviewGrowth(), overviewPending(), overviewForeign(), overviewRefusals()},
	}
}

func overviewNow() Row {
	return Row{Title: "Now", Panels: []Panel{
		{
			Title: "Health", Kind: Stat, Unit: Count, Width: 6,
			Shows:   "How many runtimes are in each state.",
			Bad:     "A runtime is degraded: it works, and something is wrong. Poisoned: its device is lost and it refuses every call.",
			Do:      "For degraded look at the reasons on the board of the guard. A poisoned process must be restarted; its incident names the launches that were under way.",
			Levels:  []Level{{1, "orange", "degraded"}, {1, "red", "poisoned"}},
			Queries: []Query{{Expr: `sum by (state) (gpumem_health{@})`, Legend: "{{state}}", Proof: moves("lose", 1, "state", "poisoned")}},
		},
		{
			Title: "Live memory", Kind: Stat, Unit: Bytes, Width: 5,
			Shows:   "Device memory that is allocated, padding included.",
			Bad:     "It is near the budget, or higher than this service ever needs.",
			Do:      "See below which tag holds it.",
			Queries: []Query{{Expr: `sum(gpumem_memory_bytes{@, state="live"})`, Proof: moves("hold", 60*mib)}},
		},
		{
			Title: "Fullest budget", Kind: Stat, Unit: Share, Width: 5,
			Shows:   "The share of its budget that the fullest device is charged for: live, pending, quarantined and claimed memory.",
			Bad:     "Close to 1 the next large request is refused.",
			Do:      "See which state and which tag holds it; raise the budget only if the device has the memory.",
			Levels:  []Level{{From: 0.8, Color: "orange"}, {From: 0.95, Color: "red"}},
			Queries: []Query{{Expr: `max(gpumem_budget_charged_bytes{@} / (gpumem_budget_limit_bytes{@} > 0))`, Proof: moves("hold", 0.2)}},
		},
		{
			Title: "Refused a second", Kind: Stat, Unit: EventsASecond, Width: 4,
			Shows:   "Allocations and reservations that callers were refused.",
			Bad:     "More than nothing: requests fail, or wait and try again.",
			Do:      "The last row says why; the refusal itself says who holds the memory.",
			Levels:  []Level{{From: 0.001, Color: "orange"}},
			Queries: []Query{{Expr: `sum(rate(gpumem_refusals_total{@}[$__rate_interval]))`, Proof: moves("refuse", 5)}},
		},
		{
			Title: "Memory bugs found", Kind: Stat, Unit: Count, Width: 4,
			Shows:  "Findings since the processes started.",
			Bad:    "Any finding is a bug; those of corrupt memory make results doubtful.",
			Do:     "Open the board of the guard, then the incident file.",
			Levels: []Level{{From: 1, Color: "red"}},
			Queries: []Query{{Expr: `sum(gpumem_findings_total{@})`, Proof: moves("misuse", 1),
				Raw: "one finding a week must not vanish from the board"}},
		},
	}}
}

func overviewHolders() Row {
	return Row{Title: "Who holds the memory?", Panels: []Panel{
		{
			Title: "Live memory by tag", Kind: TimeSeries, Unit: Bytes, Width: 12, Stacked: true,
			Shows:   "What each tag holds.",
			Bad:     "One tag's layer grows and does not shrink when the load does: its owner leaks or caches without a bound.",
			Do:      "Look at the tag's allocations in the profile (/debug/pprof/gpumem), which has stacks.",
			Queries: []Query{{Expr: `sum by (tag) (gpumem_tag_bytes{@, state="live"})`, Legend: "{{tag}}", Proof: moves("hold", 60*mib, "tag", "hold")}},
		},
		{
			Title: "Memory by state, and the budget", Kind: TimeSeries, Unit: Bytes, Width: 12,
			Shows: "Live, pending (freed, and not passed by the device) and quarantined memory, what is claimed, and the budget.",
			Bad:   "The states together reach the budget. Mostly pending: frees wait for slow streams. Mostly quarantined: the guard holds more than there is room for.",
			Do:    "Pending: see the streams board. Quarantined: lower the guard's quarantine or its tier. Live: see the tags.",
			Queries: []Query{
				{Expr: `sum by (state) (gpumem_memory_bytes{@})`, Legend: "{{state}}", Proof: moves("heldback", 30*mib, "state", "pending")},
				{Expr: `sum(gpumem_budget_claimed_bytes{@})`, Legend: "claimed", Proof: moves("reserve", 30*mib)},
				{Expr: `sum(gpumem_budget_limit_bytes{@})`, Legend: "budget", Proof: moves("limit", 60*mib)},
			},
		},
		{
			Title: "Holders", Kind: Table, Unit: Bytes, Width: 12,
			Shows: "Each tag's bytes by state now, the largest first; beyond 64 tags the rest is \"other\".",
			Bad:   "A tag that you do not know, or \"untagged\", holds much.",
			Do:    "Give allocations tags that name their owner (core.Request.Tag).",
			Queries: []Query{
				{Expr: `sort_desc(sum by (tag, state) (gpumem_tag_bytes{@}))`, Proof: moves("hold", 60*mib, "tag", "hold", "state", "live")},
			},
		},
		{
			Title: "Blocks by tag", Kind: TimeSeries, Unit: Count, Width: 6,
			Shows:   "How many live blocks each tag has.",
			Bad:     "It climbs while the bytes hardly do: small blocks leak, which the bytes show late.",
			Do:      "As for bytes: find the tag's owner by its stacks in the profile.",
			Queries: []Query{{Expr: `sum by (tag) (gpumem_tag_blocks{@, state="live"})`, Legend: "{{tag}}", Proof: moves("leak", 3, "tag", "leaky")}},
		},
		{
			Title: "High-water marks", Kind: TimeSeries, Unit: Bytes, Width: 6,
			Shows: "The most that was live since each process started, with padding, and as callers asked for it.",
			Bad:   "A step up: one request needed more than any before it. The gap between the two is padding of the guard.",
			Do:    "Size the budget by it, not by the average.",
			Queries: []Query{
				{Expr: `max by (instance, device) (gpumem_memory_peak_bytes{@})`, Legend: "{{instance}} {{device}}", Proof: moves("hold", 60*mib)},
				{Expr: `max by (instance, device) (gpumem_memory_requested_peak_bytes{@})`, Legend: "{{instance}} {{device}}, as asked", Proof: moves("hold", 60*mib)},
			},
		},
	}}
}

func overviewGrowth() Row {
	return Row{Title: "Is it growing while idle?", Panels: []Panel{
		{
			Title: "Live memory and work", Kind: TimeSeries, Unit: Bytes, Width: 12,
			Shows: "Live bytes, and on the right-hand scale the launches a second.",
			Bad:   "Bytes climb where launches are few: memory is taken that no work needs.",
			Do:    "Take the profile twice and compare the tags that grew.",
			Queries: []Query{
				{Expr: `sum(gpumem_memory_bytes{@, state="live"})`, Legend: "live", Proof: moves("leak", 3*mib)},
				{Expr: `sum(rate(gpumem_launches_total{@}[$__rate_interval]))`, Legend: "launches", RightUnit: OpsASecond, Proof: moves("work", 30)},
			},
		},
		{
			Title: "Growth by tag", Kind: TimeSeries, Unit: BytesASecond, Width: 12,
			Shows:   "By how much each tag's live bytes changed in a second, over the last 15 minutes.",
			Bad:     "A tag that stays above zero for hours leaks: healthy ones cross it.",
			Do:      "Find the owner of the tag. If it is a cache, give it a bound.",
			Queries: []Query{{Expr: `sum by (tag) (deriv(gpumem_tag_bytes{@, state="live"}[15m]))`, Legend: "{{tag}}", Proof: moves("leak", mib, "tag", "leaky")}},
		},
	}}
}
