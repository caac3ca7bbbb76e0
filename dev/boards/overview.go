package boards

import "github.com/grafana/grafana-foundation-sdk/go/units"

const mib = 1 << 20

var overview = Board{
	File: "overview", Title: "Fencepost: overview",
	Description: "Who holds the device's memory, whether it will run out, what is wrong, and where to look next. A click on a number leads to what explains it.",
	Annotations: annotations,
	Panels: []Panel{
		// What there is at this moment. A process that is gone is not.
		{Row: "Now", Title: "Health", Kind: Stat, Unit: units.Short, Width: 6, Link: "guard",
			Shows:   "How many runtimes are in each state.",
			Bad:     "A runtime is degraded: it works, and something is wrong. Poisoned: its device is lost and it refuses every call.",
			Do:      "For degraded look at the reasons below. A poisoned process must be restarted; its incident names the launches that were under way.",
			Levels:  []Level{{1, "green", "ok"}, {1, "orange", "degraded"}, {1, "red", "poisoned"}, {1, "text", "closed"}},
			Queries: []Query{{Expr: `sum by (state) (gpumem_health{@}) > 0`, Legend: "{{state}}", Proof: moves("lose", 1, "state", "poisoned")}}},
		{Title: "Firing alerts", Kind: Stat, Unit: units.Short, Width: 6, Link: "overview#Alerts", None: "none",
			Shows:   "Alerts of warning or critical that fire, if Prometheus has the rules.",
			Bad:     "Any.",
			Do:      "See which they are below.",
			Levels:  []Level{{From: 1, Color: "red"}},
			Queries: []Query{{Expr: `count(ALERTS{@process, alertname=~"Fencepost.+", alertstate="firing", severity!="info"})`, Legend: "alerts", Proof: moves("corrupt", 1)}}},
		{Title: "Memory bugs found", Kind: Stat, Unit: units.Short, Width: 6, Link: "guard#Findings by kind and victim",
			Shows:  "Findings within the time range, of processes that have ended or were restarted too.",
			Bad:    "Any finding is a bug; those of corrupt memory make results doubtful.",
			Do:     "Open the board of the guard, then the incident file.",
			Levels: []Level{{From: 1, Color: "red"}},
			Queries: []Query{{Expr: `sum(max_over_time(gpumem_findings_total{@}[$__range]))`, Legend: "findings", Proof: moves("misuse", 1),
				Raw: "one finding a week must not vanish from the board"}}},
		{Title: "Refused a second", Kind: Stat, Unit: units.OpsPerSecond, Width: 6, Link: "overview#Refusals by reason",
			Shows:   "Allocations and reservations that callers were refused.",
			Bad:     "More than nothing: requests fail, or wait and try again.",
			Do:      "The last row says why; the refusal itself says who holds the memory.",
			Levels:  []Level{{From: 0.001, Color: "orange"}},
			Queries: []Query{{Expr: `sum(rate(gpumem_refusals_total{@}[$__rate_interval]) and on (job, instance, device) gpumem_health{@, state="ok"})`, Legend: "refused", Proof: moves("refuse", 5)}}},
		{Title: "Live memory", Kind: Stat, Unit: units.BytesIEC, Width: 6, Link: "overview#Live memory by tag",
			Shows: "Device memory that is allocated, padding included: at the last scrape, and the most within the last minute, each runtime's at its own time.",
			Bad:   "It is near the budget, or higher than this service ever needs.",
			Do:    "See below which tag holds it.",
			Queries: []Query{
				{Expr: `sum(gpumem_memory_bytes{@, state="live"})`, Legend: "now", Proof: moves("hold", 60*mib)},
				{Expr: `sum(gpumem_memory_window_peak_bytes{@, state="live", window="60s"})`, Legend: "in a minute", Proof: moves("hold", 60*mib)}}},
		{Title: "Fullest device", Kind: Stat, Unit: units.PercentUnit, Width: 6, Link: "overview#The whole device",
			Shows:   "How much of the fullest device is in use, by whomever.",
			Bad:     "Close to 1 the driver refuses what the budget admits.",
			Do:      "See whether it is ours.",
			Levels:  []Level{{From: 0.9, Color: "orange"}, {From: 0.97, Color: "red"}},
			Queries: []Query{{Expr: `max(1 - gpumem_device_free_bytes{@} / gpumem_device_total_bytes{@})`, Legend: "in use", Proof: moves("foreign", 0.2)}}},
		{Title: "Fullest budget", Kind: Stat, Unit: units.PercentUnit, Width: 6, Link: "overview#Memory by state, and the budget",
			Shows: "The share of its budget that the fullest device is charged for: live, pending, quarantined and claimed memory. Above 1 memory is lent: what is freed on a stream may be " +
				"allocated there again before the device has passed the free, and is charged twice until then, though the device has it once.",
			Bad:     "Close to 1 the next large request is refused, but for what it can borrow on its own stream.",
			Do:      "See which state and which tag holds it; raise the budget only if the device has the memory.",
			Levels:  []Level{{From: 0.8, Color: "orange"}, {From: 0.95, Color: "red"}},
			Queries: []Query{{Expr: `max(gpumem_budget_charged_bytes{@} / (gpumem_budget_limit_bytes{@} > 0))`, Legend: "charged", Proof: moves("hold", 0.2)}}},
		{Title: "Time to full", Kind: Stat, Unit: units.Seconds, Width: 6, Link: "overview#Growth by tag", None: "not within a day",
			Shows:  "When the device or the budget is full if the trend of the last ten minutes goes on, if that is within a day. A trend is that even the least of the last five minutes is higher than that of the five before.",
			Bad:    "Less than it takes you to act.",
			Do:     "See which tag grows.",
			Levels: []Level{{From: 0, Color: "red"}, {From: 3600, Color: "orange"}},
			Queries: []Query{
				{Expr: deviceFull, Legend: "device", Proof: moves("leak", 10)},
				{Expr: budgetFull, Legend: "budget", Proof: moves("leak", 10)}}},
		{Row: "Is something wrong?", Title: "Alerts", Kind: Table, Unit: units.Short, Width: 12, Height: 6, None: "none fires",
			Shows:   "The alerts that fire, if Prometheus has the rules.",
			Bad:     "critical: look now. warning: today.",
			Do:      OperatePage + " has a section on each: what it means, where to look first, what to do then.",
			States:  []State{{"critical", "critical", "red"}, {"warning", "warning", "orange"}, {"info", "info", "blue"}},
			Columns: []Column{{Label: "severity", Heading: "severity"}, {Label: "alertname", Heading: "alert"}, {Label: "instance", Heading: "instance"}, {Label: "device", Heading: "device"}},
			Link:    "guard",
			Queries: []Query{{Expr: `sort_desc(max by (severity, alertname, instance, device) (ALERTS{@process, alertname=~"Fencepost.+", alertstate="firing"}))`,
				Proof: moves("corrupt", 1, "alertname", "FencepostMemoryCorrupt")}}},
		{Title: "Why not well now", Kind: Table, Unit: units.Short, Width: 12, Height: 6, None: "all are well",
			Shows:   "The reasons of each runtime that is degraded or poisoned.",
			Bad:     "Any.",
			Do:      OperatePage + " says of each reason what it means and what to do.",
			Columns: []Column{{Label: "reason", Heading: "reason"}, {Label: "instance", Heading: "instance"}, {Label: "device", Heading: "device"}},
			Link:    "guard#Why not well",
			Queries: []Query{{Expr: `max by (reason, instance, device) (gpumem_health_reasons{@}) == 1`, Proof: moves("misuse", 1, "reason", "findings")}}},
		{Row: "Who holds the memory?", Title: "Live memory by tag", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, Stacked: true, None: "no memory is held",
			Shows:   "What each tag holds, without what it gave back and the guard quarantines.",
			Bad:     "One tag's layer grows and does not shrink when the load does: its owner leaks or caches without a bound.",
			Do:      "Look at the tag's allocations in the profile (/debug/pprof/gpumem), which has stacks.",
			Queries: []Query{{Expr: `sum by (tag) (gpumem_tag_bytes{@, state="live"})`, Legend: "{{tag}}", Proof: moves("hold", 60*mib, "tag", "hold")}}},
		{Title: "Memory by state, and the budget", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12,
			Shows: "Live, pending (freed, and not passed by the device) and quarantined memory, what is claimed, and the budget.",
			Bad:   "The states together reach the budget. Mostly pending: frees wait for slow streams. Mostly quarantined: the guard holds more than there is room for.",
			Do:    "Pending: see the streams board. Quarantined: lower the guard's quarantine or its tier. Live: see the tags.",
			Queries: []Query{
				{Expr: `sum by (state) (gpumem_memory_bytes{@})`, Legend: "{{state}}", Proof: moves("heldback", 30*mib, "state", "pending")},
				{Expr: `sum(gpumem_budget_claimed_bytes{@})`, Legend: "claimed", Proof: moves("reserve", 30*mib)},
				{Expr: `sum(gpumem_budget_limit_bytes{@})`, Legend: "budget", Proof: moves("limit", 60*mib)}}},
		{Title: "Holders", Kind: Table, Unit: units.BytesIEC, Width: 12,
			Shows:   "Each tag's bytes by state now, the largest first; beyond 64 tags the rest is \"other\".",
			Bad:     "A tag that you do not know, or \"untagged\", holds much.",
			Do:      "Give allocations tags that name their owner (core.Request.Tag).",
			None:    "no memory is held",
			Columns: []Column{{Label: "tag", Heading: "tag"}, {Label: "state", Heading: "state"}, {Label: "Value", Heading: "memory", Unit: units.BytesIEC}},
			Queries: []Query{
				{Expr: `sort_desc(sum by (tag, state) (gpumem_tag_bytes{@}) > 0)`, Proof: moves("hold", 60*mib, "tag", "hold", "state", "live")}}},
		{Title: "Peaks between scrapes", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, None: "no runtime",
			Shows: "The most that was live in each 15 and 60 seconds, whenever that was: what a scrape sees of a service that comes and goes is mostly nothing. Runtimes are added up, each at its own time.",
			Bad:   "It comes close to the budget while live memory looks low.",
			Do:    "Size the budget by the peaks.",
			Queries: []Query{
				{Expr: `sum by (window) (gpumem_memory_window_peak_bytes{@, state="live"})`, Legend: "live, in {{window}}", Proof: moves("slack", 30*mib, "window", "60s")},
				{Expr: `sum(gpumem_memory_window_peak_bytes{@, state="outstanding", window="60s"})`, Legend: "with pending and quarantined, in 60s", Proof: moves("slack", 30*mib)}}},
		{Title: "Blocks by tag", Kind: TimeSeries, Unit: units.Short, Width: 12, None: "no memory is held",
			Shows:   "How many live blocks each tag has.",
			Bad:     "It climbs while the bytes hardly do: small blocks leak, which the bytes show late.",
			Do:      "As for bytes: find the tag's owner by its stacks in the profile.",
			Queries: []Query{{Expr: `sum by (tag) (gpumem_tag_blocks{@, state="live"})`, Legend: "{{tag}}", Proof: moves("leak", 3, "tag", "leaky")}}},
		{Title: "High-water marks", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12,
			Shows: "The most that was live since each process started, with padding, and as callers asked for it.",
			Bad:   "A step up: one request needed more than any before it. The gap between the two is padding of the guard.",
			Do:    "Size the budget by it, not by the average.",
			Queries: []Query{
				{Expr: `max by (instance, device) (gpumem_memory_peak_bytes{@})`, Legend: "{{instance}} {{device}}", Proof: moves("hold", 60*mib)},
				{Expr: `max by (instance, device) (gpumem_memory_requested_peak_bytes{@})`, Legend: "{{instance}} {{device}}, as asked", Proof: moves("hold", 60*mib)}}},
		{Row: "Will it run out?", Title: "Fullness of the devices and budgets", Kind: TimeSeries, Unit: units.PercentUnit, Width: 12,
			Shows: "How much of each device is in use by whomever, and how much of each budget is charged for, which lending takes above 1.",
			Bad:   "A line that climbs and does not come back: see the time to full above. The device is fuller than the budget: others hold it.",
			Do:    "See which tag grows. If it is not ours, see the whole device below.",
			Queries: []Query{
				{Expr: `max by (instance, device) (1 - gpumem_device_free_bytes{@} / gpumem_device_total_bytes{@})`, Legend: "{{instance}} {{device}}: device", Proof: moves("foreign", 0.2)},
				{Expr: `max by (instance, device) (gpumem_budget_charged_bytes{@} / (gpumem_budget_limit_bytes{@} > 0))`, Legend: "{{instance}} {{device}}: budget", Proof: moves("hold", 0.2)}}},
		{Title: "GPUs", Kind: Table, Unit: units.BytesIEC, Width: 12, Link: "overview#The whole device",
			Shows: "Each GPU once, however many processes and containers use it: which it is, its memory, what is in use by whomever, and what the runtimes on it hold together.",
			Bad:   "In use is far more than the runtimes hold: others have the rest.",
			Do:    "See the whole device below; nvidia-smi lists its processes.",
			Columns: []Column{{Label: "device_name", Heading: "GPU"}, {Label: "pci_bus_id", Heading: "PCI bus"}, {Label: "uuid", Heading: "UUID"},
				{Label: "Value #A", Heading: "memory"}, {Label: "Value #B", Heading: "in use"}, {Label: "Value #C", Heading: "of runtimes"}},
			Queries: []Query{
				{Expr: identified("max", `gpumem_device_total_bytes{@}`), Proof: stays("foreign", 256*mib)},
				{Expr: identified("max", `(gpumem_device_total_bytes{@} - gpumem_device_free_bytes{@})`), Proof: moves("foreign", 60*mib)},
				{Expr: identified("sum", `gpumem_device_held_bytes{@}`), Proof: moves("hold", 60*mib)}}},
		{Title: "Utilisation of the GPUs", Kind: TimeSeries, Unit: units.Percent, Width: 8, None: "no dcgm-exporter",
			Shows:   "The share of the time in which a kernel ran on the GPUs of these runtimes, from dcgm-exporter.",
			Bad:     "Low while requests wait: the service waits for memory, streams or the host.",
			Do:      "Compare with refusals and with the waits for streams.",
			Queries: []Query{{Expr: ofOurs("DCGM_FI_DEV_GPU_UTIL"), Legend: "{{UUID}}", Proof: moves("work", 20)}}},
		{Title: "Temperature of the GPUs", Kind: TimeSeries, Unit: units.Celsius, Width: 8, None: "no dcgm-exporter",
			Shows:   "Of the GPUs of these runtimes, from dcgm-exporter.",
			Bad:     "Close to the limit of the device, which then slows down.",
			Do:      "See to its cooling.",
			Queries: []Query{{Expr: ofOurs("DCGM_FI_DEV_GPU_TEMP"), Legend: "{{UUID}}", Proof: moves("work", 20)}}},
		{Title: "Power of the GPUs", Kind: TimeSeries, Unit: units.Watt, Width: 8, None: "no dcgm-exporter",
			Shows:   "Of the GPUs of these runtimes, from dcgm-exporter.",
			Bad:     "At its limit the device slows down.",
			Do:      "Compare with the utilisation.",
			Queries: []Query{{Expr: ofOurs("DCGM_FI_DEV_POWER_USAGE"), Legend: "{{UUID}}", Proof: moves("work", 20)}}},
		// What the service's own metrics say: those of
		// OpenTelemetry's conventions for HTTP, or else those of the example.
		{Row: "The service", Title: "Requests", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12, None: "no metrics of requests",
			Shows:   "Requests a second of the service, by http.server.request.duration of OpenTelemetry or service_request_duration_seconds of the example.",
			Bad:     "It falls while memory is full: requests are refused or wait.",
			Do:      "Compare with refusals, and with the memory above.",
			Queries: []Query{{Expr: eitherOf(`sum by (job, instance) (rate(`, `_count{@process}[$__rate_interval]))`), Legend: "{{instance}}", Proof: moves("work", 10)}}},
		{Title: "Duration of requests", Kind: TimeSeries, Unit: units.Seconds, Width: 12, Log: true, None: "no metrics of requests",
			Shows:   "The 99th percentile by instance. A point is a request that was traced; it leads to its trace.",
			Bad:     "It rises while memory is full, or while callers wait for streams.",
			Do:      "Open a slow point's trace.",
			Queries: []Query{{Expr: eitherOf(`histogram_quantile(0.99, sum by (job, instance, le) (rate(`, `_bucket{@process}[$__rate_interval]))) >= 0`), Legend: "{{instance}}, 99 %", Exemplars: true, Proof: moves("work", 0.01)}}},
		{Row: "Is it growing while idle?", Title: "Live memory and work", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12,
			Shows: "Live bytes, and on the right-hand scale the launches a second.",
			Bad:   "Bytes climb where launches are few: memory is taken that no work needs.",
			Do:    "Take the profile twice and compare the tags that grew.",
			Queries: []Query{
				{Expr: `sum(gpumem_memory_bytes{@, state="live"})`, Legend: "live", Proof: moves("leak", 3*mib)},
				{Expr: `sum(rate(gpumem_launches_total{@}[$__rate_interval]))`, Legend: "launches", RightUnit: units.OpsPerSecond, Proof: moves("work", 30)}}},
		{Title: "Growth by tag", Kind: TimeSeries, Unit: units.BytesPerSecondIEC, Width: 12, Signed: true, None: "no tag is a quarter of an hour old",
			Shows:   "By how much each tag's live bytes changed in a second, over the last 15 minutes. A tag appears when it is that old: the slope of a few samples is none.",
			Bad:     "A tag that stays above zero for hours leaks: healthy ones cross it.",
			Do:      "Find the owner of the tag. If it is a cache, give it a bound.",
			Queries: []Query{{Expr: `sum by (tag) (deriv(gpumem_tag_bytes{@, state="live"}[15m]) and gpumem_tag_bytes{@, state="live"} offset 15m)`, Legend: "{{tag}}", Proof: moves("leak", mib/4, "tag", "leaky")}}},
		{Row: "Pending, and slack in the pool", Title: "Pending memory", Kind: TimeSeries, Unit: units.BytesIEC, Width: 6,
			Shows:   "Memory that was freed and that the device has not passed yet, by runtime.",
			Bad:     "It stays high: a stream that is slow or stuck keeps what was freed on it from everybody else.",
			Do:      "See the oldest lease and the time from free to reusable; free on the stream that used the memory last.",
			Queries: []Query{{Expr: `sum by (instance, device) (gpumem_memory_bytes{@, state="pending"})`, Legend: "{{instance}} {{device}}", Proof: moves("heldback", 30*mib)}}},
		{Title: "The pool", Kind: TimeSeries, Unit: units.BytesIEC, Width: 6,
			Shows: "What the pool holds of the device, what of it is handed out, and the highest of both; of a pool of the runtime's own also the limit, where there is one.",
			Bad:   "It holds far more than it hands out: memory that no other process can have. It has come to its limit: what does not fit is refused as out_of_memory.",
			Do:    "If others need it, trim the pool (Runtime.TrimPool) at a quiet time, or have it give back by itself (AsyncConfig.ReleaseThreshold, FENCEPOST_POOL_TRIM_AFTER). Against refusals: raise the limit (Runtime.SetPoolLimit, FENCEPOST_POOL_LIMIT).",
			Queries: []Query{
				{Expr: `sum(gpumem_pool_reserved_bytes{@})`, Legend: "held", Proof: moves("hold", 60*mib)},
				{Expr: `sum(gpumem_pool_used_bytes{@})`, Legend: "handed out", Proof: moves("hold", 60*mib)},
				{Expr: `sum(gpumem_pool_reserved_peak_bytes{@})`, Legend: "most held", Proof: moves("hold", 60*mib)},
				{Expr: `sum(gpumem_pool_used_peak_bytes{@})`, Legend: "most handed out", Proof: moves("hold", 60*mib)},
				{Expr: `sum(gpumem_pool_limit_bytes{@} > 0)`, Legend: "limit", Proof: stays("ownpool", 128*mib)}}},
		{Title: "Cached in the pool", Kind: TimeSeries, Unit: units.BytesIEC, Width: 6,
			Shows: "What each pool holds beside blocks, and, of a pool of the runtime's own, what of that lies beside blocks and is no whole page.",
			Bad:   "It is large for long: a burst has passed and the pool does not give back, or it is fragmented.",
			Do:    "After a burst: trim. If it is fragmented and requests fail for want of memory: free in larger blocks, or restart at a quiet time.",
			Queries: []Query{
				{Expr: `sum by (instance, device) (gpumem_pool_cached_bytes{@})`, Legend: "{{instance}} {{device}}", Proof: moves("slack", 60*mib)},
				{Expr: `sum by (instance, device) (gpumem_pool_fragmented_bytes{@})`, Legend: "{{instance}} {{device}}, fragmented", Proof: moves("ownpool", 20*mib)}}},
		{Title: "Moves of pages", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 6, None: "no pool of the runtime's own",
			Shows:   "How often a second the runtime's own pool took pages over from other streams, stole them with a wait, mapped them anew, grew, and gave back.",
			Bad:     "It grows and trims by turns: what it gives back it needs again. Many steals: streams wait for each other's memory.",
			Do:      "Trim less (FENCEPOST_POOL_TRIM_AFTER). Against steals: raise the limit, or free on the stream that allocates next.",
			Queries: []Query{{Expr: `sum by (move) (rate(gpumem_pool_moves_total{@}[$__rate_interval]))`, Legend: "{{move}}", Proof: moves("ownpool", 1, "move", "growth")}}},
		{Row: "Not ours?", Title: "The whole device", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12,
			Shows: "Each GPU once, however many processes use it: its memory, what is free of it, what the runtimes on it hold together, and the rest: contexts, libraries, other processes.",
			Bad:   "What is not ours grows: the budget promises memory that the device does not have, and allocations will fail in the driver.",
			Do:    "List the device's processes (nvidia-smi), and lower the budget to what is left (Budget().SetLimit).",
			Queries: []Query{
				{Expr: deviceTotal, Legend: "{{uuid}}: size", Proof: stays("foreign", 256*mib)},
				{Expr: deviceFree, Legend: "{{uuid}}: free", Proof: moves("foreign", -60*mib)},
				{Expr: deviceHeld, Legend: "{{uuid}}: runtimes", Proof: moves("hold", 60*mib)},
				{Expr: `clamp_min(` + deviceTotal + ` - ` + deviceFree + ` - ` + deviceHeld + `, 0)`, Legend: "{{uuid}}: others", Proof: moves("foreign", 60*mib)}}},
		{Title: "Drift of the ledger", Kind: TimeSeries, Unit: units.BytesIEC, Width: 6, Signed: true,
			Shows:   "What the ledger says of the pool, less what the pool says itself; of a pool of the runtime's own also what is mapped, less what its streams have of it.",
			Bad:     "Anything but zero: memory of the driver's pool was freed around the runtime (above zero) or allocated (below), or the books are wrong.",
			Do:      "Look for calls of cuMemFreeAsync on blocks of the runtime; report it if there are none, or if the pool is the runtime's own.",
			Queries: []Query{{Expr: `sum by (instance, device) (gpumem_drift_bytes{@})`, Legend: "{{instance}} {{device}}", Proof: moves("drift", 30*mib)}}},
		{Title: "Age of the readings", Kind: TimeSeries, Unit: units.Seconds, Width: 6,
			Shows: "How long ago the device was last read, and the drift last established, both of which happen once a second.",
			Bad:   "They grow: the driver does not answer, or fails, and what stands to the left is old. Only the drift's grows: allocations leave no quiet moment for it.",
			Do:    "See the driver's failures and the runtime's health.",
			Queries: []Query{
				{Expr: `max by (instance, device) (clamp_min(time() - gpumem_device_read_timestamp_seconds{@}, 0))`, Legend: "{{instance}} {{device}}", Proof: moves("deaf", 3)},
				{Expr: `max by (instance, device) (clamp_min(time() - gpumem_drift_read_timestamp_seconds{@}, 0))`, Legend: "{{instance}} {{device}}, drift", Proof: moves("deaf", 3)}}},
		{Row: "Refused, and why", Title: "Refusals by reason", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 8, None: "none",
			Shows:   "Allocations and reservations a second that callers were refused. A point is a refusal whose span was exported; it leads to its trace.",
			Bad:     "out_of_budget: the service wants more than its share. out_of_memory: the device has less than the budget promises. exceeds_budget: a caller asks for more than the whole budget. claim_exceeded: a job allocates more than it reserved. Others are errors of callers.",
			Do:      "out_of_budget: reserve before work starts, and shed load. out_of_memory: lower the budget, see \"Not ours?\". exceeds_budget: refuse such requests at the door. claim_exceeded: reserve more in that job.",
			Queries: []Query{{Expr: `sum by (reason) (rate(gpumem_refusals_total{@}[$__rate_interval])) > 0`, Legend: "{{reason}}", Exemplars: true, Proof: moves("oom", 1, "reason", "out_of_memory")}}},
		{Title: "Share of requests refused", Kind: TimeSeries, Unit: units.PercentUnit, Width: 8, None: "no requests",
			Shows: "Of all allocations and reservations, those refused for want of memory that fit the budget.",
			Bad:   "Above a hundredth the service is too small for its load, or something holds what it needs.",
			Do:    "Compare with the tags above at the same time.",
			Queries: []Query{{Expr: `sum(rate(gpumem_refusals_total{@, reason=~"out_of_budget|out_of_memory"}[$__rate_interval]))` +
				` / sum(rate(gpumem_operations_total{@, op=~"allocate|reserve"}[$__rate_interval])) >= 0`, Legend: "refused", Proof: moves("refuse", 0.2)}}},
		{Title: "Refusals of the budget, and failures of the driver", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 8,
			Shows: "What the budget refused, including what the guard then cured by giving up quarantine, and calls that the driver failed.",
			Bad:   "The budget refuses more than callers are told: the guard lives from hand to mouth. The driver fails: see the findings.",
			Do:    "Raise the budget or shrink quarantine; for the driver see the log and the incident files.",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_budget_refusals_total{@}[$__rate_interval]))`, Legend: "budget", Proof: moves("refuse", 5)},
				{Expr: `sum(rate(gpumem_driver_failures_total{@}[$__rate_interval]))`, Legend: "driver", Proof: moves("oom", 1)}}},
		{Title: "Requests that wait for memory", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12, None: "none",
			Shows: "Requests a second that waited for the device to come to memory that is freed, by whether they got theirs, and how long one waits.",
			Bad:   "refused: the device is so far behind that patience ends. Waits that grow are latency of requests.",
			Do:    "Free earlier, or on the stream of the last use; keep long kernels off the streams of requests; see \"Time from free to reusable\" on the operations board.",
			Queries: []Query{
				{Expr: `sum by (outcome) (rate(gpumem_memory_waits_total{@}[$__rate_interval]))`, Legend: "{{outcome}}", Proof: moves("pending", 1, "outcome", "served")},
				{Expr: `sum(rate(gpumem_memory_wait_seconds_total{@}[$__rate_interval])) / sum(rate(gpumem_memory_waits_total{@}[$__rate_interval])) >= 0`,
					Legend: "mean wait", RightUnit: units.Seconds, Proof: moves("pending", 0.001)}}},
		{Title: "Jobs in line for memory", Kind: TimeSeries, Unit: units.Short, Width: 12,
			Shows:   "Jobs that wait for their reservation, in the order in which they came.",
			Bad:     "The line does not empty between peaks: more work comes than memory for it, or the first waits for more than will come free.",
			Do:      "Shed load, or shorten the wait; see what the first asks for and who holds memory, in the live view.",
			Queries: []Query{{Expr: `sum(gpumem_budget_waiting{@})`, Legend: "jobs", Proof: moves("line", 1)}}},
	},
}

// annotations are what every board marks but that of the fleet.
var annotations = []Annotation{
	{Name: "Findings", Color: "red", Title: "Memory bug: {{kind}}", Query: Query{Expr: rises("kind", "gpumem_findings_total"), Proof: moves("misuse", 1, "kind", "double-free"), Raw: "compared with itself"}},
	{Name: "Restarts", Color: "orange", Title: "Runtime started", At: true, Query: Query{Expr: `1000 * max by (instance, device) (gpumem_runtime_start_time_seconds{@})`, Proof: Proof{Scene: "quiet", After: 1.7e12}}},
	{Name: "Guard switches", Color: "purple", Title: "Guard: {{mode}}", Query: Query{Expr: rises("mode", "gpumem_guard_mode"), Proof: moves("hunt", 1, "mode", "hunt")}},
	{Name: "Dumps", Color: "blue", Title: "Dump: {{trigger}}", Query: Query{Expr: rises("trigger", "gpumem_dumps_total"), Proof: moves("corrupt", 1, "trigger", "finding"), Raw: "compared with itself"}},
}

// rises is where a sum is higher than it was five minutes ago.
func rises(by, series string) string {
	sum := `sum by (instance, device, ` + by + `) (` + series + `{@}`
	return sum + `) > ` + sum + ` offset 5m)`
}

// healthStates are the values that queries give to the states of health.
var healthStates = []State{{"0", "ok", "green"}, {"1", "degraded", "orange"}, {"2", "poisoned", "red"}, {"3", "closed", "text"}}

// When the device and the budget are full: what is left over how fast it goes,
// where even the least that was in use has risen, for ten minutes at least.
const (
	deviceFull = `min(gpumem_device_free_bytes{@} / (-deriv(gpumem_device_free_bytes{@}[10m]) > 0)` +
		` and (gpumem_device_total_bytes{@} - max_over_time(gpumem_device_free_bytes{@}[5m])) > 1.02 * (gpumem_device_total_bytes{@} - max_over_time(gpumem_device_free_bytes{@}[5m] offset 5m))` +
		` and gpumem_device_free_bytes{@} offset 10m) < 86400`
	budgetFull = `min((gpumem_budget_limit_bytes{@} - gpumem_budget_charged_bytes{@} > 0) / (deriv(gpumem_budget_charged_bytes{@}[10m]) > 0)` +
		` and min_over_time(gpumem_budget_charged_bytes{@}[5m]) > 1.02 * min_over_time(gpumem_budget_charged_bytes{@}[5m] offset 5m)` +
		` and gpumem_budget_charged_bytes{@} offset 10m) < 86400`
)

// A device is a number of its process. What is said of GPUs is joined with
// their identity, which all processes on one agree on: of what each process
// says of the whole GPU the highest counts, of what it holds itself the sum.
const (
	ofDevice    = ` * on (job, instance, device) group_left (uuid) gpumem_device_info{@})`
	deviceTotal = `max by (uuid) (gpumem_device_total_bytes{@}` + ofDevice
	deviceFree  = `max by (uuid) (gpumem_device_free_bytes{@}` + ofDevice
	deviceHeld  = `sum by (uuid) (gpumem_device_held_bytes{@}` + ofDevice
)

// identified is by GPU, with all that says which it is. The host is not part of
// that: two containers on one GPU have names of their own.
func identified(how, series string) string {
	const identity = `device_name, pci_bus_id, uuid`
	return how + ` by (` + identity + `) (` + series + ` * on (job, instance, device) group_left (` + identity + `) gpumem_device_info{@})`
}

// ofOurs is a metric of dcgm-exporter, which calls UUID what we call uuid, of
// the GPUs that the chosen runtimes use.
func ofOurs(metric string) string {
	return `max by (UUID) (` + metric + ` and on (UUID) label_replace(gpumem_device_info{@}, "UUID", "$1", "uuid", "(.*)"))`
}

// eitherOf asks for the conventional metric of requests, or else the example's.
func eitherOf(begin, end string) string {
	return begin + "http_server_request_duration_seconds" + end + " or " + begin + "service_request_duration_seconds" + end
}
