package boards

const mib = 1 << 20

func overview() Board {
	return Board{
		File: "overview", Title: "Fencepost: overview",
		Description: "Who holds the device's memory, whether it will run out, what is wrong, and where to look next. A click on a number leads to what explains it.",
		Annotations: annotationsOf(),
		Rows:        []Row{overviewNow(), overviewWrong(), overviewHolders(), overviewOutlook(), overviewService(), overviewGrowth(), overviewPending(), overviewForeign(), overviewRefusals()},
	}
}

func overviewHolders() Row {
	return Row{Title: "Who holds the memory?", Panels: []Panel{
		{
			Title: "Live memory by tag", Kind: TimeSeries, Unit: Bytes, Width: 12, Stacked: true, None: "nobody holds memory",
			Shows:   "What each tag holds, without what it gave back and the guard quarantines.",
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
			Shows:   "Each tag's bytes by state now, the largest first; beyond 64 tags the rest is \"other\".",
			Bad:     "A tag that you do not know, or \"untagged\", holds much.",
			Do:      "Give allocations tags that name their owner (core.Request.Tag).",
			None:    "nobody holds memory",
			Columns: []Column{{Label: "tag", Heading: "tag"}, {Label: "state", Heading: "state"}, {Label: "Value", Heading: "memory", Unit: Bytes}},
			Queries: []Query{
				{Expr: `sort_desc(sum by (tag, state) (gpumem_tag_bytes{@}) > 0)`, Proof: moves("hold", 60*mib, "tag", "hold", "state", "live")},
			},
		},
		{
			Title: "Peaks between scrapes", Kind: TimeSeries, Unit: Bytes, Width: 12, None: "no runtime",
			Shows: "The most that was live in each 15 and 60 seconds, whenever that was: what a scrape sees of a service that comes and goes is mostly nothing. Runtimes are added up, each at its own time.",
			Bad:   "It comes close to the budget while live memory looks low.",
			Do:    "Size the budget by the peaks.",
			Queries: []Query{
				{Expr: `sum by (window) (gpumem_memory_window_peak_bytes{@, state="live"})`, Legend: "live, in {{window}}", Proof: moves("slack", 30*mib, "window", "60s")},
				{Expr: `sum(gpumem_memory_window_peak_bytes{@, state="outstanding", window="60s"})`, Legend: "with pending and quarantined, in 60s", Proof: moves("slack", 30*mib)},
			},
		},
		{
			Title: "Blocks by tag", Kind: TimeSeries, Unit: Count, Width: 12, None: "nobody holds memory",
			Shows:   "How many live blocks each tag has.",
			Bad:     "It climbs while the bytes hardly do: small blocks leak, which the bytes show late.",
			Do:      "As for bytes: find the tag's owner by its stacks in the profile.",
			Queries: []Query{{Expr: `sum by (tag) (gpumem_tag_blocks{@, state="live"})`, Legend: "{{tag}}", Proof: moves("leak", 3, "tag", "leaky")}},
		},
		{
			Title: "High-water marks", Kind: TimeSeries, Unit: Bytes, Width: 12,
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
			Title: "Growth by tag", Kind: TimeSeries, Unit: BytesASecond, Width: 12, Signed: true, None: "no tag is a quarter of an hour old",
			Shows:   "By how much each tag's live bytes changed in a second, over the last 15 minutes. A tag appears when it is that old: the slope of a few samples is none.",
			Bad:     "A tag that stays above zero for hours leaks: healthy ones cross it.",
			Do:      "Find the owner of the tag. If it is a cache, give it a bound.",
			Queries: []Query{{Expr: `sum by (tag) (deriv(gpumem_tag_bytes{@, state="live"}[15m]) and gpumem_tag_bytes{@, state="live"} offset 15m)`, Legend: "{{tag}}", Proof: moves("leak", mib/4, "tag", "leaky")}},
		},
	}}
}
