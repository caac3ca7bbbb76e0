package boards

import "github.com/grafana/grafana-foundation-sdk/go/units"

// fleet is about many runtimes: what they have in common, and which is not like
// the others.
var fleet = Board{
	File: "fleet", Title: "Fencepost: fleet",
	Description: "Many runtimes at once: who holds the memory of all of them, which are not like the others, what runs where, and how often bugs are found.",
	Annotations: []Annotation{},
	Panels: []Panel{
		{Row: "What runs", Title: "Runtimes by health", Kind: TimeSeries, Unit: units.Short, Width: 8, Height: 8, Stacked: true, Link: "guard",
			Shows:   "How many runtimes are in each state.",
			Bad:     "degraded grows since a release or on one kind of device.",
			Do:      "See which reasons they share, and on which instances.",
			Levels:  []Level{{0, "green", "ok"}, {0, "orange", "degraded"}, {0, "red", "poisoned"}, {0, "text", "closed"}},
			Queries: []Query{{Expr: `sum by (state) (gpumem_health{@}) > 0`, Legend: "{{state}}", Proof: moves("lose", 1, "state", "poisoned")}}},
		{Title: "What runs where", Kind: Table, Unit: units.Short, Width: 16, Height: 8,
			Shows: "Which version of Fencepost runs where, on which device, in which stack, with the guard in which mode.",
			Bad:   "Versions differ within one job for longer than a rollout takes. hunt on more hosts than you chose, or off where you rely on the guard.",
			Do:    "Finish the rollout, or roll back. Switch the guard: fencepost guard sample.",
			Columns: []Column{{Label: "instance", Heading: "instance", Width: 150, Links: toBoards}, {Label: "device", Heading: "device"}, {Label: "version", Heading: "version", Width: 90}, {Label: "mode", Heading: "guard", Width: 80},
				{Label: "device_name", Heading: "GPU", Width: 190}, {Label: "goversion", Heading: "Go", Width: 90}, {Label: "stack", Heading: "stack", Width: 300}},
			Queries: []Query{{Expr: `gpumem_build_info{@} * on (job, instance, device) group_left (mode) (gpumem_guard_mode{@} == 1)`, Proof: moves("hunt", 1, "mode", "hunt")}}},
		{Row: "Who holds the memory of all?", Title: "Top tags", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, Stacked: true, None: "no memory is held", Link: "overview#Live memory by tag",
			Shows: "The five tags that hold most over the runtimes that are chosen, live memory, and the others together.",
			Bad:   "One that was not there before a release.",
			Do:    "Open the overview for its instances.",
			Queries: []Query{
				{Expr: largest(5, "tag", tagsOfAll), Legend: "{{tag}}", Proof: moves("hold", 60*mib, "tag", "hold")},
				{Expr: others(5, "tag", tagsOfAll), Legend: "others", Proof: moves("tags", 3*mib)}}},
		{Title: "Fullest budgets, and refusals", Kind: Table, Unit: units.PercentUnit, Width: 12, Largest: []string{"share of budget"},
			Shows: "The ten runtimes of whose budget most was taken at most in the last minute, and the ten that refuse most requests for memory a second.",
			Bad:   "Few are full and most are not: the load is not spread. One alone refuses: it has a leak, or a load that the others have not.",
			Do:    "Open the overview for the instance.",
			Columns: []Column{{Label: "instance", Heading: "instance", Width: 150, Links: toBoards}, {Label: "device", Heading: "device"},
				{Label: "Value #A", Heading: "share of budget", Unit: units.PercentUnit, Width: 160, Gauge: true, Levels: full}, {Label: "Value #B", Heading: "refused a second", Unit: units.OpsPerSecond, Width: 160}},
			Queries: []Query{
				{Expr: `topk(10, ` + budgetShare + `)`, Proof: moves("slack", 0.2)},
				{Expr: `topk(10, sum by (job, instance, device) (rate(gpumem_refusals_total{@}[$__rate_interval])) > 0)`, Proof: moves("refuse", 5)}}},
		{Row: "Which are not like the others?", Title: "Live memory away from the median", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, None: "none holds more than the median", Link: "overview",
			Shows: "The five runtimes that hold most beyond the median of their job.",
			Bad:   "One leaves the others for hours: it leaks, or gets another load.",
			Do:    "Open the overview for the instance and compare its tags with those of another.",
			Queries: []Query{{Expr: largest(5, "job, instance, device", `max by (job, instance, device) (gpumem_memory_bytes{@, state="live"}) - on (job) group_left () quantile by (job) (0.5, gpumem_memory_bytes{job=~"$job", state="live"}) > 0`),
				Legend: "{{instance}} {{device}}", Fleet: "a runtime is compared with all of its job", Proof: moves("hold", 60*mib, "instance", "hold")}}},
		{Title: "Where bugs were found", Kind: Table, Unit: units.Short, Width: 12, None: "none", Largest: []string{"findings"},
			Shows:   "Findings within the time range by instance and kind, of processes that have ended too.",
			Bad:     "One host alone, with a program that others run well: its hardware, or its driver. All: the program.",
			Do:      "Open the board of the guard for the instance.",
			Columns: []Column{{Label: "instance", Heading: "instance", Width: 150, Links: toBoards}, {Label: "device", Heading: "device"}, {Label: "kind", Heading: "kind", Width: 150}, {Label: "Value", Heading: "findings"}},
			Queries: []Query{{Expr: found(` by (instance, device, kind)`, `kind!="oom"`) + ` > 0`, Proof: moves("corrupt", 1, "kind", "oob-write"), Raw: newFindings}}},
	},
}

const tagsOfAll = `sum by (tag) (gpumem_tag_bytes{@, state="live"}) > 0`
