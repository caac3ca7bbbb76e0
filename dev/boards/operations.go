package boards

func operations() Board {
	return Board{
		File: "operations", Title: "Fencepost: operations",
		Description: "What each runtime is asked to do, how long that takes, and what becomes of launches and their waits.",
		Annotations: annotationsOf(),
		Rows:        []Row{operationsRates(), operationsLatency(), operationsLaunches(), operationsReuse()},
	}
}

func operationsRates() Row {
	return Row{Title: "Rates", Panels: []Panel{
		{
			Title: "Operations", Kind: TimeSeries, Unit: OpsASecond, Width: 12, Stacked: true,
			Shows:   "Calls a second by operation, whatever came of them.",
			Bad:     "Allocations rise and requests do not: memory is taken piecemeal that could be reserved or reused.",
			Do:      "Allocate for a request at once, from a reservation.",
			Queries: []Query{{Expr: `sum by (op) (rate(gpumem_operations_total{@}[$__rate_interval])) > 0`, Legend: "{{op}}", Proof: moves("work", 30, "op", "allocate")}},
		},
		{
			Title: "Failed operations", Kind: TimeSeries, Unit: OpsASecond, Width: 12, None: "none",
			Shows:   "Calls a second that returned an error, by operation and reason.",
			Bad:     "use_after_free, stream_misuse, out_of_bounds: errors of the program. driver_error: the device. The rest is memory, see the overview.",
			Do:      "The error's text says what to do; a memory bug has an incident file too.",
			Queries: []Query{{Expr: `sum by (op, result) (rate(gpumem_operations_total{@, result!="ok"}[$__rate_interval])) > 0`, Legend: "{{op}}: {{result}}", Exemplars: true, Proof: moves("refuse", 5, "op", "allocate", "result", "out_of_budget")}},
		},
		{
			Title: "Allocations and frees", Kind: TimeSeries, Unit: OpsASecond, Width: 12,
			Shows: "Successful allocations and deallocations a second.",
			Bad:   "The lines part for long: what is allocated is not freed.",
			Do:    "See \"Growth by tag\" on the overview.",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_allocations_total{@}[$__rate_interval]))`, Legend: "allocated", Proof: moves("work", 30)},
				{Expr: `sum(rate(gpumem_deallocations_total{@}[$__rate_interval]))`, Legend: "freed", Proof: moves("work", 30)},
			},
		},
		{
			Title: "Runtimes", Kind: Table, Unit: Count, Width: 12,
			Shows:   "Which version of Fencepost runs where, on which device, in which stack.",
			Bad:     "Versions differ within one job for longer than a rollout takes.",
			Do:      "Finish the rollout, or roll back.",
			Columns: []Column{{Label: "instance", Heading: "instance"}, {Label: "device", Heading: "device"}, {Label: "device_name", Heading: "GPU"}, {Label: "version", Heading: "version"}, {Label: "goversion", Heading: "Go"}, {Label: "stack", Heading: "stack"}},
			Queries: []Query{{Expr: `gpumem_build_info{@}`, Proof: stays("quiet", 1)}},
		},
	}}
}

func operationsLatency() Row {
	return Row{Title: "Latency", Panels: []Panel{
		{
			Title: "Latency by operation", Kind: TimeSeries, Unit: Seconds, Width: 24, Log: true, None: "no calls",
			Shows: "How long calls took on the host, median and 99th percentile, from classic buckets. A point is a call that was traced; it leads to its trace.",
			Bad:   "The 99th percentile leaves the median by orders of magnitude: the driver serialises, or a reap got in the way.",
			Do:    "Open a slow point's trace. Allocate from fewer threads, or keep blocks longer.",
			Queries: []Query{
				{Expr: `histogram_quantile(0.99, sum by (le, op) (rate(gpumem_operation_duration_seconds_bucket{@}[$__rate_interval]))) >= 0`, Legend: "{{op}}, 99 %", Exemplars: true, Proof: moves("slow", 0.01, "op", "allocate")},
				{Expr: `histogram_quantile(0.5, sum by (le, op) (rate(gpumem_operation_duration_seconds_bucket{@}[$__rate_interval]))) >= 0`, Legend: "{{op}}, 50 %", Proof: moves("slow", 0.01, "op", "allocate")},
			},
		},
		{
			Title: "Latency by operation, finer", Kind: TimeSeries, Unit: Seconds, Width: 24, Log: true, None: "no calls",
			Shows: "The same, on average too, from native histograms, where Prometheus scrapes them: within some percent instead of a bucket's width.",
			Bad:   "As above. Empty: Prometheus keeps classic buckets only.",
			Do:    "As above; to fill it set scrape_native_histograms.",
			Queries: []Query{
				{Expr: `histogram_quantile(0.99, sum by (op) (rate(gpumem_operation_duration_seconds{@}[$__rate_interval]))) >= 0`, Legend: "{{op}}, 99 %", Proof: moves("slow", 0.01, "op", "allocate")},
				{Expr: `histogram_avg(sum by (op) (rate(gpumem_operation_duration_seconds{@}[$__rate_interval]))) >= 0`, Legend: "{{op}}, mean", Proof: moves("slow", 0.01, "op", "allocate")},
			},
		},
		{
			Title: "Allocations by duration", Kind: Heatmap, Unit: OpsASecond, Width: 12, None: "no allocations",
			Shows:   "How many allocations a second took how long.",
			Bad:     "A second band appears above the first: some allocations meet something that others do not.",
			Do:      "Compare its beginning with the pool's size: a pool that grows asks the driver for memory.",
			Queries: []Query{{Expr: `sum by (le) (rate(gpumem_operation_duration_seconds_bucket{@, op="allocate"}[$__rate_interval]))`, Legend: "{{le}}", Proof: moves("work", 30, "le", "+Inf")}},
		},
		{
			Title: "Threads in calls", Kind: TimeSeries, Unit: Count, Width: 12, None: "none",
			Shows:   "How many of the host's threads were in each operation, on average.",
			Bad:     "Close to the number of threads that launch: they wait for the runtime or the driver instead of working.",
			Do:      "Find the operation whose count or latency rose.",
			Queries: []Query{{Expr: `sum by (op) (rate(gpumem_operation_duration_seconds_sum{@}[$__rate_interval])) > 0`, Legend: "{{op}}", Proof: moves("slow", 0.1, "op", "allocate")}},
		},
	}}
}

func operationsLaunches() Row {
	return Row{Title: "Launches and waits", Panels: []Panel{
		{
			Title: "Launches", Kind: TimeSeries, Unit: OpsASecond, Width: 8,
			Shows: "Launches a second, those of them that used what another stream wrote last, and those that were prepared and given up.",
			Bad:   "Aborted launches are frequent: work is prepared that cannot be enqueued.",
			Do:    "See the program's log for why it gives up between prepare and enqueue.",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_launches_total{@}[$__rate_interval]))`, Legend: "finished", Proof: moves("work", 30)},
				{Expr: `sum(rate(gpumem_launches_cross_stream_total{@}[$__rate_interval]))`, Legend: "across streams", Proof: moves("cross", 5)},
				{Expr: `sum(rate(gpumem_launches_aborted_total{@}[$__rate_interval]))`, Legend: "aborted", Proof: moves("abort", 5)},
			},
		},
		{
			Title: "Waits", Kind: TimeSeries, Unit: OpsASecond, Width: 8,
			Shows:   "Dependencies on other streams a second: those for which a wait was queued, and those that needed none.",
			Bad:     "Queued waits rise with the load while none are elided: streams hand every buffer around.",
			Do:      "Keep a request on one stream; cross where it pays.",
			Queries: []Query{{Expr: `sum by (outcome) (rate(gpumem_waits_total{@}[$__rate_interval]))`, Legend: "{{outcome}}", Proof: moves("cross", 5, "outcome", "queued")}},
		},
		{
			Title: "Waits elided", Kind: TimeSeries, Unit: Share, Width: 8, None: "no waits",
			Shows: "The share of dependencies that needed no wait, because an order was there already.",
			Bad:   "It falls after a release: an order that came for free is gone.",
			Do:    "Compare the traces of a request before and after: links show what waited for what.",
			Queries: []Query{{Expr: `sum(rate(gpumem_waits_total{@, outcome="elided"}[$__rate_interval])) / sum(rate(gpumem_waits_total{@}[$__rate_interval])) >= 0`,
				Legend: "elided", Proof: moves("cross", 0.1)}},
		},
	}}
}

func operationsReuse() Row {
	return Row{Title: "From free to reusable", Panels: []Panel{
		{
			Title: "Time from free to reusable", Kind: TimeSeries, Unit: Seconds, Width: 12, Log: true, None: "no frees",
			Shows: "From a free's request until the runtime knew that the device had passed it, median and 99th percentile.",
			Bad:   "Longer than a request takes: what one request frees, the next cannot have.",
			Do:    "Free earlier, or on the stream of the last use; look for a stream that is behind on the streams board.",
			Queries: []Query{
				{Expr: `histogram_quantile(0.99, sum by (le) (rate(gpumem_free_to_reusable_seconds_bucket{@}[$__rate_interval]))) >= 0`, Legend: "99 %", Proof: moves("late", 0.2)},
				{Expr: `histogram_quantile(0.5, sum by (le) (rate(gpumem_free_to_reusable_seconds_bucket{@}[$__rate_interval]))) >= 0`, Legend: "50 %", Proof: moves("late", 0.1)},
			},
		},
		{
			Title: "Frees that became reusable", Kind: TimeSeries, Unit: OpsASecond, Width: 12,
			Shows: "Frees a second that the device has passed, and the mean time that it took.",
			Bad:   "None while memory is pending: the device makes no progress on a stream.",
			Do:    "See pending memory on the overview, and the oldest lease.",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_free_to_reusable_seconds_count{@}[$__rate_interval]))`, Legend: "passed", Proof: moves("work", 30)},
				{Expr: `sum(rate(gpumem_free_to_reusable_seconds_sum{@}[$__rate_interval])) / sum(rate(gpumem_free_to_reusable_seconds_count{@}[$__rate_interval])) >= 0`,
					Legend: "mean", RightUnit: Seconds, Proof: moves("late", 0.1)},
			},
		},
	}}
}
