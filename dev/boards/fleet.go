package boards

// fleet is about many runtimes: what they have in common, and which is not like
// the others.
func fleet() Board {
	return Board{
		File: "fleet", Title: "Fencepost: fleet",
		Description: "Many runtimes at once: who holds the memory of all of them, which are not like the others, what runs where, and how often bugs are found.",
		Annotations: []Annotation{},
		Rows:        []Row{fleetNow(), fleetMemory(), fleetOutliers(), fleetBugs()},
	}
}

func fleetNow() Row {
	return Row{Title: "What runs", Panels: []Panel{
		{
			Title: "Runtimes by health", Kind: TimeSeries, Unit: Count, Width: 8, Height: 7, Stacked: true, Link: "guard",
			Shows:   "How many runtimes are in each state.",
			Bad:     "degraded grows since a release or on one kind of device.",
			Do:      "See which reasons they share, and on which instances.",
			Queries: []Query{{Expr: `sum by (state) (gpumem_health{@}) > 0`, Legend: "{{state}}", Proof: moves("lose", 1, "state", "poisoned")}},
		},
		{
			Title: "Runtimes by version", Kind: TimeSeries, Unit: Count, Width: 8, Height: 7, Stacked: true, Link: "operations#Runtimes",
			Shows:   "How many runtimes run each version.",
			Bad:     "Two versions for longer than a rollout takes.",
			Do:      "Finish the rollout, or roll back.",
			Queries: []Query{{Expr: `count by (version) (gpumem_build_info{@})`, Legend: "{{version}}", Proof: stays("quiet", 1)}},
		},
		{
			Title: "Runtimes by mode of the guard", Kind: TimeSeries, Unit: Count, Width: 8, Height: 7, Stacked: true, Link: "guard#Mode",
			Shows:   "How many runtimes are in each mode.",
			Bad:     "hunt on more hosts than you chose, or off where you rely on it.",
			Do:      "Switch it: fencepost guard sample.",
			Queries: []Query{{Expr: `sum by (mode) (gpumem_guard_mode{@}) > 0`, Legend: "{{mode}}", Proof: moves("hunt", 1, "mode", "hunt")}},
		},
	}}
}

func fleetMemory() Row {
	return Row{Title: "Who holds the memory of all?", Panels: []Panel{
		{
			Title: "Top tags", Kind: TimeSeries, Unit: Bytes, Width: 12, None: "nobody holds memory", Link: "overview#Live memory by tag",
			Shows:   "The ten tags that hold most over all runtimes of a job, live memory, from a recording rule.",
			Bad:     "One that was not there before a release.",
			Do:      "Open the overview for its instances.",
			Queries: []Query{{Expr: `topk(10, sum by (tag) (job_tag:gpumem_tag_bytes:sum{job=~"$job", state="live"}))`, Legend: "{{tag}}", Fleet: "the rule adds the instances up", Proof: moves("hold", 60*mib, "tag", "hold")}},
		},
		{
			Title: "Fullest budgets", Kind: Table, Unit: Share, Width: 6, Link: "overview",
			Shows:   "The ten runtimes whose budget is charged most, as a share of it. Above 1 memory is lent, see the overview.",
			Bad:     "Few are full and most are not: the load is not spread.",
			Do:      "Open the overview for the instance.",
			Columns: []Column{{Label: "instance", Heading: "instance"}, {Label: "device", Heading: "device"}, {Label: "Value", Heading: "charged", Unit: Share}},
			Queries: []Query{{Expr: `sort_desc(topk(10, max by (instance, device) (gpumem_budget_charged_bytes{@} / (gpumem_budget_limit_bytes{@} > 0))))`, Proof: moves("hold", 0.2)}},
		},
		{
			Title: "Most refusals", Kind: Table, Unit: OpsASecond, Width: 6, None: "none", Link: "overview#Refusals by reason",
			Shows:   "The ten runtimes that refuse most requests for memory a second.",
			Bad:     "Any; one alone has a leak or a load that the others have not.",
			Do:      "Open the overview for the instance.",
			Columns: []Column{{Label: "instance", Heading: "instance"}, {Label: "device", Heading: "device"}, {Label: "Value", Heading: "refused a second", Unit: OpsASecond}},
			Queries: []Query{{Expr: `sort_desc(topk(10, sum by (instance, device) (rate(gpumem_refusals_total{@}[$__rate_interval]))) > 0)`, Proof: moves("refuse", 5)}},
		},
	}}
}

func fleetOutliers() Row {
	return Row{Title: "Which are not like the others?", Panels: []Panel{
		{
			Title: "Live memory away from the median", Kind: TimeSeries, Unit: Bytes, Width: 12, Link: "overview",
			Shows: "The ten runtimes that hold most beyond the median of their job.",
			Bad:   "One leaves the others for hours: it leaks, or gets another load.",
			Do:    "Open the overview for the instance and compare its tags with those of another.",
			Queries: []Query{{Expr: `topk(10, max by (job, instance, device) (gpumem_memory_bytes{job=~"$job", state="live"}) - on (job) group_left () quantile by (job) (0.5, gpumem_memory_bytes{job=~"$job", state="live"}) > 0)`,
				Legend: "{{instance}} {{device}}", Fleet: "a runtime is compared with all of its job", Proof: moves("hold", 60*mib, "instance", "hold")}},
		},
		{
			Title: "Slowest allocations", Kind: TimeSeries, Unit: Seconds, Width: 12, Log: true, None: "no allocations", Link: "operations#Latency by operation",
			Shows: "The ten runtimes whose allocations take longest, mean.",
			Bad:   "One is slower than the others by orders of magnitude: its device or its driver is.",
			Do:    "Open the board of operations for the instance.",
			Queries: []Query{{Expr: `topk(10, sum by (instance, device) (rate(gpumem_operation_duration_seconds_sum{@, op="allocate"}[$__rate_interval])) / sum by (instance, device) (rate(gpumem_operation_duration_seconds_count{@, op="allocate"}[$__rate_interval])) >= 0)`,
				Legend: "{{instance}} {{device}}", Proof: moves("slow", 0.01)}},
		},
	}}
}

func fleetBugs() Row {
	return Row{Title: "How often are bugs found?", Panels: []Panel{
		{
			Title: "Findings per device and hour", Kind: TimeSeries, Unit: Count, Width: 12, None: "none", Link: "guard#Findings by kind",
			Shows:   "Memory bugs found in the last hour by kind, over the number of devices, from a recording rule.",
			Bad:     "It rises with a release.",
			Do:      "Compare versions above; open the board of the guard for the kind.",
			Queries: []Query{{Expr: `sum by (kind) (increase(instance_kind:gpumem_findings_total{@}[1h])) / on () group_left () count(gpumem_health{@, state="ok"}) > 0`, Legend: "{{kind}}", Proof: moves("misuse", 0.1, "kind", "double-free")}},
		},
		{
			Title: "Where bugs were found", Kind: Table, Unit: Count, Width: 12, None: "none", Link: "guard#Findings by kind and victim",
			Shows:   "Findings within the time range by instance and kind, of processes that have ended too, from a recording rule.",
			Bad:     "One host alone: its hardware, or its driver. All: the program.",
			Do:      "Open the board of the guard for the instance.",
			Columns: []Column{{Label: "instance", Heading: "instance"}, {Label: "device", Heading: "device"}, {Label: "kind", Heading: "kind"}, {Label: "Value", Heading: "findings"}},
			Queries: []Query{{Expr: `sort_desc(max by (instance, device, kind) (max_over_time(instance_kind:gpumem_findings_total{@}[$__range])) > 0)`, Proof: moves("corrupt", 1, "kind", "oob-write"), Raw: "one finding a week must not vanish from the board"}},
		},
	}}
}
