package boards

func overviewPending() Row {
	return Row{Title: "Pending, and slack in the pool", Panels: []Panel{
		{
			Title: "Pending memory", Kind: TimeSeries, Unit: Bytes, Width: 6,
			Shows:   "Memory that was freed and that the device has not passed yet, by runtime.",
			Bad:     "It stays high: a stream that is slow or stuck keeps what was freed on it from everybody else.",
			Do:      "See the oldest lease and the time from free to reusable; free on the stream that used the memory last.",
			Queries: []Query{{Expr: `sum by (instance, device) (gpumem_memory_bytes{@, state="pending"})`, Legend: "{{instance}} {{device}}", Proof: moves("heldback", 30*mib)}},
		},
		{
			Title: "The pool", Kind: TimeSeries, Unit: Bytes, Width: 6,
			Shows: "What the pool holds of the device, what of it is handed out, and the highest of both; of a pool of the runtime's own also the limit, where there is one.",
			Bad:   "It holds far more than it hands out: memory that no other process can have. It has come to its limit: what does not fit is refused as out_of_memory.",
			Do:    "If others need it, trim the pool (Runtime.TrimPool) at a quiet time, or have it give back by itself (AsyncConfig.ReleaseThreshold, FENCEPOST_POOL_TRIM_AFTER). Against refusals: raise the limit (Runtime.SetPoolLimit, FENCEPOST_POOL_LIMIT).",
			Queries: []Query{
				{Expr: `sum(gpumem_pool_reserved_bytes{@})`, Legend: "held", Proof: moves("hold", 60*mib)},
				{Expr: `sum(gpumem_pool_used_bytes{@})`, Legend: "handed out", Proof: moves("hold", 60*mib)},
				{Expr: `sum(gpumem_pool_reserved_peak_bytes{@})`, Legend: "most held", Proof: moves("hold", 60*mib)},
				{Expr: `sum(gpumem_pool_used_peak_bytes{@})`, Legend: "most handed out", Proof: moves("hold", 60*mib)},
				{Expr: `sum(gpumem_pool_limit_bytes{@} > 0)`, Legend: "limit", Proof: stays("ownpool", 128*mib)},
			},
		},
		{
			Title: "Cached in the pool", Kind: TimeSeries, Unit: Bytes, Width: 6,
			Shows: "What each pool holds and nobody has, and, of a pool of the runtime's own, what of that lies beside blocks and is no whole page.",
			Bad:   "It is large for long: a burst has passed and the pool does not give back, or it is fragmented.",
			Do:    "After a burst: trim. If it is fragmented and requests fail for want of memory: free in larger blocks, or restart at a quiet time.",
			Queries: []Query{
				{Expr: `sum by (instance, device) (gpumem_pool_cached_bytes{@})`, Legend: "{{instance}} {{device}}", Proof: moves("slack", 60*mib)},
				{Expr: `sum by (instance, device) (gpumem_pool_fragmented_bytes{@})`, Legend: "{{instance}} {{device}}, fragmented", Proof: moves("ownpool", 20*mib)},
			},
		},
		{
			Title: "Moves of pages", Kind: TimeSeries, Unit: OpsASecond, Width: 6, None: "no pool of the runtime's own",
			Shows:   "How often a second the runtime's own pool took pages over from other streams, stole them with a wait, mapped them anew, grew, and gave back.",
			Bad:     "It grows and trims by turns: what it gives back it needs again. Many steals: streams wait for each other's memory.",
			Do:      "Trim less (FENCEPOST_POOL_TRIM_AFTER). Against steals: raise the limit, or free on the stream that allocates next.",
			Queries: []Query{{Expr: `sum by (move) (rate(gpumem_pool_moves_total{@}[$__rate_interval]))`, Legend: "{{move}}", Proof: moves("ownpool", 1, "move", "growth")}},
		},
	}}
}

func overviewForeign() Row {
	return Row{Title: "Not ours?", Panels: []Panel{
		{
			Title: "The whole device", Kind: TimeSeries, Unit: Bytes, Width: 12,
			Shows: "Each GPU once, however many processes use it: its memory, what is free of it, what the runtimes on it hold together, and the rest: contexts, libraries, other processes.",
			Bad:   "What is not ours grows: the budget promises memory that the device does not have, and allocations will fail in the driver.",
			Do:    "List the device's processes (nvidia-smi), and lower the budget to what is left (Budget().SetLimit).",
			Queries: []Query{
				{Expr: deviceTotal, Legend: "{{uuid}}: size", Proof: stays("foreign", 256*mib)},
				{Expr: deviceFree, Legend: "{{uuid}}: free", Proof: moves("foreign", -60*mib)},
				{Expr: deviceHeld, Legend: "{{uuid}}: runtimes", Proof: moves("hold", 60*mib)},
				{Expr: `clamp_min(` + deviceTotal + ` - ` + deviceFree + ` - ` + deviceHeld + `, 0)`, Legend: "{{uuid}}: others", Proof: moves("foreign", 60*mib)},
			},
		},
		{
			Title: "Drift of the ledger", Kind: TimeSeries, Unit: Bytes, Width: 6, Signed: true,
			Shows:   "What the ledger says of the pool, less what the pool says itself; of a pool of the runtime's own also what is mapped, less what its streams have of it.",
			Bad:     "Anything but zero: memory of the driver's pool was freed around the runtime (above zero) or allocated (below), or the books are wrong.",
			Do:      "Look for calls of cuMemFreeAsync on blocks of the runtime; report it if there are none, or if the pool is the runtime's own.",
			Queries: []Query{{Expr: `sum by (instance, device) (gpumem_drift_bytes{@})`, Legend: "{{instance}} {{device}}", Proof: moves("drift", 30*mib)}},
		},
		{
			Title: "Age of the readings", Kind: TimeSeries, Unit: Seconds, Width: 6,
			Shows: "How long ago the device was last read, and the drift last established, both of which happen once a second.",
			Bad:   "They grow: the driver does not answer, or fails, and what stands to the left is old. Only the drift's grows: allocations leave no quiet moment for it.",
			Do:    "See the driver's failures and the runtime's health.",
			Queries: []Query{
				{Expr: `max by (instance, device) (clamp_min(time() - gpumem_device_read_timestamp_seconds{@}, 0))`, Legend: "{{instance}} {{device}}", Proof: moves("deaf", 3)},
				{Expr: `max by (instance, device) (clamp_min(time() - gpumem_drift_read_timestamp_seconds{@}, 0))`, Legend: "{{instance}} {{device}}, drift", Proof: moves("deaf", 3)},
			},
		},
	}}
}

func overviewRefusals() Row {
	return Row{Title: "Refused, and why", Panels: []Panel{
		{
			Title: "Refusals by reason", Kind: TimeSeries, Unit: OpsASecond, Width: 8, None: "none",
			Shows:   "Allocations and reservations a second that callers were refused. A point is a refusal whose span was exported; it leads to its trace.",
			Bad:     "out_of_budget: the service wants more than its share. out_of_memory: the device has less than the budget promises. exceeds_budget: somebody asks for more than the whole budget. claim_exceeded: a job allocates more than it reserved. Others are errors of callers.",
			Do:      "out_of_budget: reserve before work starts, and shed load. out_of_memory: lower the budget, see \"Not ours?\". exceeds_budget: refuse such requests at the door. claim_exceeded: reserve more in that job.",
			Queries: []Query{{Expr: `sum by (reason) (rate(gpumem_refusals_total{@}[$__rate_interval])) > 0`, Legend: "{{reason}}", Exemplars: true, Proof: moves("oom", 1, "reason", "out_of_memory")}},
		},
		{
			Title: "Share of requests refused", Kind: TimeSeries, Unit: Share, Width: 8, None: "no requests",
			Shows: "Of all allocations and reservations, those refused for want of memory that fit the budget.",
			Bad:   "Above a hundredth the service is too small for its load, or something holds what it needs.",
			Do:    "Compare with the tags above at the same time.",
			Queries: []Query{{Expr: `sum(rate(gpumem_refusals_total{@, reason=~"out_of_budget|out_of_memory"}[$__rate_interval]))` +
				` / sum(rate(gpumem_operations_total{@, op=~"allocate|reserve"}[$__rate_interval])) >= 0`, Legend: "refused", Proof: moves("refuse", 0.2)}},
		},
		{
			Title: "Refusals of the budget, and failures of the driver", Kind: TimeSeries, Unit: OpsASecond, Width: 8,
			Shows: "What the budget refused, including what the guard then cured by giving up quarantine, and calls that the driver failed.",
			Bad:   "The budget refuses more than callers are told: the guard lives from hand to mouth. The driver fails: see the findings.",
			Do:    "Raise the budget or shrink quarantine; for the driver see the log and the incident files.",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_budget_refusals_total{@}[$__rate_interval]))`, Legend: "budget", Proof: moves("refuse", 5)},
				{Expr: `sum(rate(gpumem_driver_failures_total{@}[$__rate_interval]))`, Legend: "driver", Proof: moves("oom", 1)},
			},
		},
	}}
}
