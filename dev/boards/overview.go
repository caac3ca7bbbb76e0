package boards

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/units"
)

const mib = 1 << 20

var overview = Board{
	File: "overview", Title: "Fencepost: overview",
	Description: "Who holds the device's memory, whether it will run out, what is wrong, and where to look next. A click on a number leads to what explains it.",
	Annotations: annotations,
	Panels: []Panel{
		// What there is at this moment. A process that is gone is not.
		{Row: "Now", Title: "Runtimes", Kind: Table, Unit: units.Short, Width: 24, Height: 7, Largest: []string{"health", "share of budget"},
			Shows: "Each runtime, the worst first: what is live now and was at most in the last minute, its budget and what of that was taken at most in the last minute, the same of its own pool's limit, " +
				"how well it is, and since when: since when it has not been well, or else since when it runs.",
			Bad: "A share near 100 %: the next large request is refused. Any state but ok.",
			Do:  "Click the instance: its live page says who holds the memory now; the boards say since when. A runbook is behind its health.",
			Columns: []Column{
				{Label: "instance", Heading: "instance", Width: 160, Links: append([]Link{{"Live page", "http://${__data.fields.instance}/debug/gpumem/"}}, toBoards...)}, {Label: "device", Heading: "device"},
				{Label: "Value #A", Heading: "live", Unit: units.BytesIEC, Width: 90}, {Label: "Value #B", Heading: "most in 60 s", Unit: units.BytesIEC, Width: 110},
				{Label: "Value #C", Heading: "budget", Unit: units.BytesIEC, Width: 90}, {Label: "Value #D", Heading: "share of budget", Unit: units.PercentUnit, Width: 160, Gauge: true, Levels: full},
				{Label: "Value #E", Heading: "share of pool", Unit: units.PercentUnit, Width: 160, Gauge: true, Levels: full},
				{Label: "Value #F", Heading: "health", Width: 90, States: healthStates, Links: []Link{{"Runbook", runbookPage + "#health"}}},
				{Label: "Value #G", Heading: "since", Unit: units.DateTimeFromNow, Width: 130}},
			Queries: []Query{
				{Expr: `sum by (job, instance, device) (gpumem_memory_bytes{@, state="live"})`, Proof: moves("hold", 60*mib)},
				{Expr: `max by (job, instance, device) (gpumem_memory_window_peak_bytes{@, state="live", window="60s"})`, Proof: moves("slack", 30*mib)},
				{Expr: `max by (job, instance, device) (gpumem_budget_limit_bytes{@} > 0)`, Proof: moves("limit", 60*mib)},
				{Expr: budgetShare, Proof: moves("slack", 0.2)},
				{Expr: poolShare, Proof: moves("fullpool", 0.6)},
				{Expr: `max by (job, instance, device) (` + healthNumber + `)`, Proof: moves("lose", 2)},
				{Expr: `1000 * max by (job, instance, device) (gpumem_unwell_since_timestamp_seconds{@} or gpumem_runtime_start_time_seconds{@})`, Proof: Proof{Scene: "quiet", After: 1.7e12}}}},
		{Title: "Health", Kind: Stat, Unit: units.Short, Width: 5, Height: 4, Link: "guard",
			Shows:  "How many runtimes are in each state, and how many have ended within the time range and are gone.",
			Bad:    "A runtime is degraded: it works, and something is wrong. Poisoned: its device is lost and it refuses every call. Gone, and it was not stopped.",
			Do:     "For degraded look at the reasons below. A poisoned process must be restarted; its incident names the launches that were under way. Of one that is gone see its last minutes on the board of the guard.",
			Levels: []Level{{1, "green", "ok"}, {1, "orange", "degraded"}, {1, "red", "poisoned"}, {1, "text", "closed"}, {1, "orange", "gone"}},
			Queries: []Query{
				{Expr: `sum by (state) (gpumem_health{@}) > 0`, Legend: "{{state}}", Proof: moves("lose", 1, "state", "poisoned")},
				{Expr: `count(last_over_time(gpumem_runtime_start_time_seconds{@}[$__range]) unless gpumem_runtime_start_time_seconds{@})`, Legend: "gone", Proof: moves("end", 1)}}},
		{Title: "Firing alerts", Kind: Stat, Unit: units.Short, Width: 3, Height: 4, Link: "overview#Alerts", None: "no rules",
			Shows:  "Alerts of warning or critical that fire. \"no rules\": Prometheus has not loaded them, or there was no runtime.",
			Bad:    "Any, and no rules.",
			Do:     "See which they are below. Without rules give rules/fencepost.yaml to Prometheus.",
			Levels: []Level{{From: 1, Color: "red"}},
			Queries: []Query{{Expr: `count(ALERTS{@process, alertname=~"Fencepost.+", alertstate="firing", severity!="info"}) or 0 * count(last_over_time(instance_kind:gpumem_findings_total{job=~"$job"}[$__range]))`,
				Legend: "alerts", Fleet: "whether there are rules does not depend on the choice", Raw: "asked whether it is there", Proof: moves("corrupt", 1)}}},
		{Title: "Memory bugs found", Kind: Stat, Unit: units.Short, Width: 4, Height: 4, Link: "guard#Findings by kind and victim", None: "none",
			Shows:  "Findings within the time range, of processes that have ended or were restarted too: of those after which bytes may be wrong, and of others. Requests that the device could not serve are refusals.",
			Bad:    "Any finding is a bug; those of corrupt memory make results doubtful.",
			Do:     "Open the board of the guard, then the incident file.",
			Levels: []Level{{1, "red", "corrupt"}, {1, "orange", "other"}},
			Queries: []Query{
				{Expr: found(``, `kind=~"`+corrupting+`"`), Legend: "corrupt", Proof: moves("corrupt", 1), Raw: newFindings},
				{Expr: found(``, `kind!~"`+corrupting+`|oom"`), Legend: "other", Proof: moves("misuse", 1), Raw: newFindings}}},
		{Title: "Refused a second", Kind: Stat, Unit: units.OpsPerSecond, Width: 4, Height: 4, Link: "overview#Refusals by reason",
			Shows:   "Allocations and reservations that callers were refused.",
			Bad:     "More than nothing: requests fail, or wait and try again.",
			Do:      "\"Refusals by reason\" says why; the refusal itself says who holds the memory.",
			Levels:  []Level{{From: 0.001, Color: "orange"}},
			Queries: []Query{{Expr: `sum(rate(gpumem_refusals_total{@}[$__rate_interval]) and on (job, instance, device) gpumem_health{@, state="ok"})`, Legend: "refused", Proof: moves("refuse", 5)}}},
		{Title: "Time to full", Kind: Stat, Unit: units.Seconds, Width: 4, Height: 4, Link: "overview#Growth by tag",
			Shows: "When the first device, budget or pool is full if the trend of the last ten minutes goes on, if that is within a day. A trend is that even the least of the last five minutes is higher than that of the five before. " +
				"\"full now\": requests are refused for want of memory.",
			Bad:    "Less than it takes you to act.",
			Do:     "See which tag grows. Full now: see who holds the memory below.",
			Levels: []Level{{From: 0, Color: "red"}, {From: 3600, Color: "orange"}, {From: 86400, Color: "green"}},
			States: []State{{"0", "full now", "red"}, {strconv.Itoa(notSoon), "not within a day", "green"}},
			Queries: []Query{{Expr: timeToFull(), Legend: "full",
				Proof: moves("leak", 86400-notSoon), Also: []Proof{moves("refuse", -notSoon), moves("fullpool", -notSoon)}}}},
		{Title: "Fullest", Kind: Stat, Unit: units.PercentUnit, Width: 4, Height: 4, Link: "overview#Fullness of devices, budgets and pools",
			Shows:  "How much of the fullest device is in use, by whomever; how much of the fullest budget, and of the fullest pool that has a limit, was taken at most in the last minute.",
			Bad:    "Close to 100 % the next large request is refused: by the budget or the pool, with the holders' names, or by the driver.",
			Do:     "See which tag holds it; raise a limit only if the device has the memory. If the device is fuller than the budget: see whether it is ours.",
			Levels: full,
			Queries: []Query{
				{Expr: `max(1 - gpumem_device_free_bytes{@} / gpumem_device_total_bytes{@})`, Legend: "device", Proof: moves("foreign", 0.2)},
				{Expr: `max(` + budgetShare + `)`, Legend: "budget", Proof: moves("slack", 0.2)},
				{Expr: `max(` + poolShare + `)`, Legend: "pool", Proof: moves("fullpool", 0.6)}}},
		{Row: "Is something wrong?", Title: "Alerts", Kind: Table, Unit: units.Short, Width: 16, Height: 6, None: "none fires", Largest: []string{"severity"},
			Shows: "The alerts that fire, if Prometheus has the rules, the gravest first.",
			Bad:   "critical: look now. warning: today.",
			Do:    "Click the alert: its runbook says what to do first; its board shows it for this instance.",
			Columns: []Column{
				{Label: "Value #A", Heading: "severity", Width: 100, States: []State{{"3", "critical", "red"}, {"2", "warning", "orange"}, {"1", "info", "blue"}}},
				{Label: "alertname", Heading: "alert", Width: 210, Links: []Link{{"Runbook", runbookPage + "#${__data.fields.runbook}"}, {"Board", rowURL("${__data.fields.board}")}}},
				{Label: "instance", Heading: "instance", Width: 150, Links: toBoards}, {Label: "device", Heading: "device"}, {Label: "kind", Heading: "kind", Width: 110}, {Label: "tag", Heading: "tag", Width: 110},
				{Label: "Value #B", Heading: "since", Unit: units.DateTimeFromNow, Width: 110}, {Label: "board", Heading: "board", Hidden: true}, {Label: "runbook", Heading: "runbook", Hidden: true}},
			Queries: []Query{
				{Expr: alertLabels(`3 * ` + firing(`severity="critical"`) + ` or 2 * ` + firing(`severity="warning"`) + ` or ` + firing(`severity="info"`)), Proof: moves("corrupt", 3, "alertname", "FencepostMemoryCorrupt")},
				{Expr: alertLabels(`1000 * max by (` + alertIdentity + `) (ALERTS_FOR_STATE{@process, alertname=~"Fencepost.+"}) and ` + firing(``)), Proof: Proof{Scene: "corrupt", After: 1.7e12}}}},
		{Title: "Why not well now", Kind: Table, Unit: units.Short, Width: 8, Height: 6,
			Shows: "The reasons of each runtime that is degraded or poisoned.",
			Bad:   "Any.",
			Do:    OperatePage + " says of each reason what it means and what to do.",
			Columns: []Column{{Label: "reason", Heading: "reason", Width: 130, Links: []Link{{"Runbook", runbookPage + "#reasons"}}},
				{Label: "instance", Heading: "instance", Width: 130, Links: toBoards}, {Label: "device", Heading: "device"}},
			Queries: []Query{{Expr: `max by (reason, instance, device) (gpumem_health_reasons{@}) == 1 or on () label_replace(count(gpumem_health{@, state="ok"}), "reason", "none: all are well", "", "")`,
				Proof: moves("misuse", 1, "reason", "findings")}}},
		{Row: "Who holds the memory?", Title: "Live memory by tag", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, Height: 7, Stacked: true, None: "no memory is held",
			Shows: "What each tag held when most was live in the last minute, however short that was; the five largest of the time range, and the others together.",
			Bad:   "One tag's layer grows and does not shrink when the load does: its owner leaks or caches without a bound.",
			Do:    "Look at the tag's allocations in the profile (/debug/pprof/gpumem), which has stacks.",
			Queries: []Query{
				{Expr: largest(5, "tag", heldAtPeak), Legend: "{{tag}}", Proof: moves("hold", 60*mib, "tag", "hold")},
				{Expr: others(5, "tag", heldAtPeak), Legend: "others", Proof: moves("tags", 3*mib)}}},
		{Title: "Holders", Kind: Table, Unit: units.BytesIEC, Width: 12, Height: 7, None: "no memory is held", Largest: []string{"at the peak"},
			Shows: "What each tag held when most was live in the last minute, what it holds now, and in how many blocks; beyond 64 tags the rest is \"other\". Memory that lives for milliseconds is seen at the peak alone.",
			Bad:   "A tag that you do not know, or \"untagged\", holds much. Many blocks of few bytes: small ones leak.",
			Do:    "Give allocations tags that name their owner (core.Request.Tag).",
			Columns: []Column{{Label: "tag", Heading: "tag", Width: 260}, {Label: "Value #A", Heading: "at the peak", Unit: units.BytesIEC, Width: 140},
				{Label: "Value #B", Heading: "now", Unit: units.BytesIEC, Width: 100}, {Label: "Value #C", Heading: "blocks", Width: 80}},
			Queries: []Query{
				{Expr: heldAtPeak + ` > 0`, Proof: moves("flash", 8*mib, "tag", "flash")},
				{Expr: `sum by (tag) (gpumem_tag_bytes{@, state="live"}) > 0`, Proof: moves("hold", 60*mib, "tag", "hold")},
				{Expr: `sum by (tag) (gpumem_tag_blocks{@, state="live"}) > 0`, Proof: moves("leak", 3, "tag", "leaky")}}},
		{Title: "Memory by state, and the budget", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, Height: 7,
			Shows: "Live, pending (freed, and not passed by the device) and quarantined memory, what is claimed, and the budget. Pending memory may be lent: allocated again on its own stream, and then it is counted in both " +
				"states though the device has it once. So pending may be more than there is of the device. Where others set a limit, as for a container, what they allow.",
			Bad: "Live, quarantined and claimed together reach the budget. Much is pending and live memory is low: frees wait for slow streams. Mostly quarantined: the guard holds more than there is room for.",
			Do:  "Pending: see the streams board. Quarantined: lower the guard's quarantine or its tier. Live: see the tags.",
			Queries: []Query{
				{Expr: `sum by (state) (gpumem_memory_bytes{@, state!="pending"})`, Legend: "{{state}}", Proof: moves("hold", 60*mib, "state", "live")},
				{Expr: `sum(gpumem_memory_bytes{@, state="pending"})`, Legend: "pending, lent again or not", Proof: moves("heldback", 30*mib)},
				{Expr: `sum(gpumem_budget_claimed_bytes{@})`, Legend: "claimed", Proof: moves("reserve", 30*mib)},
				{Expr: `sum(gpumem_budget_limit_bytes{@})`, Legend: "budget", Proof: moves("limit", 60*mib)},
				{Expr: `sum by (source) (gpumem_limit_bytes{@})`, Legend: "allowed by {{source}}", Proof: moves("contained", 60*mib, "source", "cgroup")}}},
		{Title: "Peaks between scrapes", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, Height: 7,
			Shows: "The most that was live in each 15 and 60 seconds, whenever that was: what a scrape sees of a service that comes and goes is mostly nothing. Runtimes are added up, each at its own time.",
			Bad:   "It comes close to the budget while live memory looks low.",
			Do:    "Size the budget by the peaks.",
			Queries: []Query{
				{Expr: `sum by (window) (gpumem_memory_window_peak_bytes{@, state="live"})`, Legend: "live, in {{window}}", Proof: moves("slack", 30*mib, "window", "60s")},
				{Expr: `sum(gpumem_memory_window_peak_bytes{@, state="outstanding", window="60s"})`, Legend: "with pending and quarantined, in 60s", Proof: moves("slack", 30*mib)}}},
		{Row: "Will it run out?", Title: "Fullness of devices, budgets and pools", Kind: TimeSeries, Unit: units.PercentUnit, Width: 12, Height: 7,
			Shows: "How much of each device is in use by whomever, and of each budget and each pool that has a limit how much was taken at most in the last minute; of each the three fullest.",
			Bad:   "A line that climbs and does not come back: see the time to full above. The device is fuller than the budget: others hold it.",
			Do:    "See which tag grows. If it is not ours, see the whole device below.",
			Queries: []Query{
				{Expr: largest(3, "job, instance, device", `max by (job, instance, device) (1 - gpumem_device_free_bytes{@} / gpumem_device_total_bytes{@})`), Legend: "{{instance}} {{device}}: device", Proof: moves("foreign", 0.2)},
				{Expr: largest(3, "job, instance, device", budgetShare), Legend: "{{instance}} {{device}}: budget", Proof: moves("slack", 0.2)},
				{Expr: largest(3, "job, instance, device", poolShare), Legend: "{{instance}} {{device}}: pool", Proof: moves("fullpool", 0.6)}}},
		{Title: "Growth by tag", Kind: TimeSeries, Unit: units.BytesPerSecondIEC, Width: 12, Height: 7, Signed: true, None: "no tag is a quarter of an hour old",
			Shows:   "By how much each tag's live bytes changed in a second, over the last 15 minutes: the five that grew most in the time range. A tag appears when it is that old: the slope of a few samples is none.",
			Bad:     "A tag that stays above zero for hours leaks: healthy ones cross it.",
			Do:      "Find the owner of the tag. If it is a cache, give it a bound.",
			Queries: []Query{{Expr: largest(5, "tag", `sum by (tag) (deriv(gpumem_tag_bytes{@, state="live"}[15m]) and gpumem_tag_bytes{@, state="live"} offset 15m)`), Legend: "{{tag}}", Proof: moves("leak", mib/4, "tag", "leaky")}}},
		{Row: "Refused, and why", Fold: true, Title: "Refusals by reason", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12, None: "none",
			Shows:   "Allocations and reservations a second that callers were refused. A point is a refusal whose span was exported; it leads to its trace.",
			Bad:     "out_of_budget: the service wants more than its share. out_of_memory: the device has less than the budget promises. exceeds_budget: a caller asks for more than the whole budget. claim_exceeded: a job allocates more than it reserved. Others are errors of callers.",
			Do:      "out_of_budget: reserve before work starts, and shed load. out_of_memory: lower the budget, see \"The pool and the device\". exceeds_budget: refuse such requests at the door. claim_exceeded: reserve more in that job.",
			Queries: []Query{{Expr: `sum by (reason) (rate(gpumem_refusals_total{@}[$__rate_interval])) > 0`, Legend: "{{reason}}", Exemplars: true, Proof: moves("oom", 1, "reason", "out_of_memory")}}},
		{Title: "Requests that wait for memory", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12, None: "none",
			Shows: "Requests a second that waited for the device to come to memory that is freed, by whether they got theirs, and how long one waits.",
			Bad:   "refused: the device is so far behind that patience ends. Waits that grow are latency of requests.",
			Do:    "Free earlier, or on the stream of the last use; keep long kernels off the streams of requests; see \"Time from free to reusable\" on the operations board.",
			Queries: []Query{
				{Expr: `sum by (outcome) (rate(gpumem_memory_waits_total{@}[$__rate_interval]))`, Legend: "{{outcome}}", Proof: moves("pending", 1, "outcome", "served")},
				{Expr: `sum(rate(gpumem_memory_wait_seconds_total{@}[$__rate_interval])) / (sum(rate(gpumem_memory_waits_total{@}[$__rate_interval])) > 0)`,
					Legend: "mean wait", RightUnit: units.Seconds, Proof: moves("pending", 0.001)}}},
		{Row: "The pool and the device", Fold: true, Title: "The pool", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12,
			Shows: "What each pool holds of the device and what of it is handed out; of a pool of the runtime's own also its limit, if it has one, and what of it is free beside blocks and no whole page. The three that hold most.",
			Bad:   "It holds far more than it hands out: memory that no other process can have. It has come to its limit: what does not fit is refused as out_of_memory. Much is fragmented: only its own stream can use that.",
			Do:    "If others need it, trim the pool (Runtime.TrimPool) at a quiet time, or have it give back by itself (AsyncConfig.ReleaseThreshold, FENCEPOST_POOL_TRIM_AFTER). Against refusals: raise the limit (Runtime.SetPoolLimit, FENCEPOST_POOL_LIMIT).",
			Queries: []Query{
				{Expr: ofLargestPools(`gpumem_pool_reserved_bytes{@}`), Legend: "{{instance}} {{device}}: held", Proof: moves("slack", 60*mib)},
				{Expr: ofLargestPools(`gpumem_pool_used_bytes{@}`), Legend: "{{instance}} {{device}}: handed out", Proof: moves("hold", 60*mib)},
				{Expr: ofLargestPools(`gpumem_pool_fragmented_bytes{@}`), Legend: "{{instance}} {{device}}: fragmented", Proof: moves("ownpool", 20*mib)},
				{Expr: ofLargestPools(`gpumem_pool_limit_bytes{@} > 0`), Legend: "{{instance}} {{device}}: limit", Proof: stays("ownpool", 128*mib)}}},
		{Title: "Moves of pages", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12, None: "no pool of the runtime's own",
			Shows:   "How often a second the runtime's own pool took pages over from other streams, stole them with a wait, mapped them anew, grew, and gave back.",
			Bad:     "It grows and trims by turns: what it gives back it needs again. Many steals: streams wait for each other's memory.",
			Do:      "Trim less (FENCEPOST_POOL_TRIM_AFTER). Against steals: raise the limit, or free on the stream that allocates next.",
			Queries: []Query{{Expr: `sum by (move) (rate(gpumem_pool_moves_total{@}[$__rate_interval]))`, Legend: "{{move}}", Proof: moves("ownpool", 1, "move", "growth")}}},
		{Title: "The whole device", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12,
			Shows: "The two GPUs of which most is in use, each once, however many processes use it: its memory, what is free of it, what the runtimes on it hold together, and the rest: contexts, libraries, other processes.",
			Bad:   "What is not ours grows: the budget promises memory that the device does not have, and allocations will fail in the driver.",
			Do:    "List the device's processes (nvidia-smi), and lower the budget to what is left (Budget().SetLimit).",
			Queries: []Query{
				{Expr: ofFullestGPUs(deviceTotal), Legend: "{{uuid}}: size", Proof: stays("foreign", 256*mib)},
				{Expr: ofFullestGPUs(deviceFree), Legend: "{{uuid}}: free", Proof: moves("foreign", -60*mib)},
				{Expr: ofFullestGPUs(deviceHeld), Legend: "{{uuid}}: runtimes", Proof: moves("hold", 60*mib)},
				{Expr: ofFullestGPUs(`clamp_min(` + deviceTotal + ` - ` + deviceFree + ` - ` + deviceHeld + `, 0)`), Legend: "{{uuid}}: others", Proof: moves("foreign", 60*mib)}}},
		{Title: "GPUs", Kind: Table, Unit: units.BytesIEC, Width: 12, Largest: []string{"in use"},
			Shows: "Each GPU once, however many processes and containers use it: which it is (of its UUID the end), its memory, what is in use by whomever, and what the runtimes on it hold together.",
			Bad:   "In use is far more than the runtimes hold: others have the rest.",
			Do:    "See the whole device; nvidia-smi lists its processes.",
			Columns: []Column{{Label: "device_name", Heading: "GPU", Width: 190}, {Label: "pci_bus_id", Heading: "PCI bus", Width: 120}, {Label: "uuid", Heading: "UUID", Width: 160},
				{Label: "Value #A", Heading: "memory", Unit: units.BytesIEC, Width: 90}, {Label: "Value #B", Heading: "in use", Unit: units.BytesIEC, Width: 90}, {Label: "Value #C", Heading: "of runtimes", Unit: units.BytesIEC, Width: 100}},
			Queries: []Query{
				{Expr: identified("max", `gpumem_device_total_bytes{@}`), Proof: stays("foreign", 256*mib)},
				{Expr: identified("max", `(gpumem_device_total_bytes{@} - gpumem_device_free_bytes{@})`), Proof: moves("foreign", 60*mib)},
				{Expr: identified("sum", `gpumem_device_held_bytes{@}`), Proof: moves("hold", 60*mib)}}},
		{Title: "Drift of the ledger", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, Signed: true,
			Shows: "What the ledger says of the pool, less what the pool says itself; of a pool of the runtime's own also what is mapped, less what its streams have of it. On the right how long ago a device was last read, which is done once a second until it is lost.",
			Bad:   "Anything but zero: memory of the driver's pool was freed around the runtime (above zero) or allocated (below), or the books are wrong. The age grows: the driver does not answer, or fails, and what is said of the device is old.",
			Do:    "Look for calls of cuMemFreeAsync on blocks of the runtime; report it if there are none, or if the pool is the runtime's own.",
			Queries: []Query{
				{Expr: largest(5, "instance, device", `sum by (instance, device) (gpumem_drift_bytes{@})`), Legend: "{{instance}} {{device}}", Proof: moves("drift", 30*mib)},
				{Expr: `max(clamp_min(time() - gpumem_device_read_timestamp_seconds{@} unless on (job, instance, device) gpumem_device_lost{@} == 1, 0))`, Legend: "oldest reading", RightUnit: units.Seconds, Proof: moves("deaf", 3)}}},
		inRow("What do launches wait for on the device?", heldUpByWaits),
		// What the service's own metrics say: those of
		// OpenTelemetry's conventions for HTTP, or else those of the example.
		{Row: "The service and its GPUs", Fold: true, Title: "Requests of the service", Kind: TimeSeries, Unit: units.Seconds, Width: 12, Log: true, None: "no metrics of requests",
			Shows: "The 99th percentile of the duration by instance, and on the right the requests a second, by http.server.request.duration of OpenTelemetry or service_request_duration_seconds of the example. A point is a request that was traced; it leads to its trace.",
			Bad:   "Durations rise, or requests fall, while memory is full or callers wait for streams.",
			Do:    "Open a slow point's trace. Compare with refusals, and with the memory above.",
			Queries: []Query{
				{Expr: largest(5, "job, instance", eitherOf(`histogram_quantile(0.99, sum by (job, instance, le) (rate(`, `_bucket{@process}[$__rate_interval]))) >= 0`)), Legend: "{{instance}}, 99 %", Exemplars: true, Proof: moves("work", 0.01)},
				{Expr: eitherOf(`sum(rate(`, `_count{@process}[$__rate_interval]))`), Legend: "requests", RightUnit: units.OpsPerSecond, Proof: moves("work", 10)}}},
		{Title: "The GPUs, by dcgm-exporter", Kind: TimeSeries, Unit: units.Percent, Width: 12, None: "no dcgm-exporter",
			Shows: "The share of the time in which a kernel ran on the GPUs of these runtimes, their temperature and their power, of each the three highest.",
			Bad:   "Low while requests wait: the service waits for memory, streams or the host. Temperature or power at the limit of the device, which then slows down.",
			Do:    "Compare with refusals and with the waits for streams; see to the cooling.",
			Queries: []Query{
				{Expr: ofOurs("DCGM_FI_DEV_GPU_UTIL"), Legend: "{{UUID}}: busy", Proof: moves("work", 20)},
				{Expr: ofOurs("DCGM_FI_DEV_GPU_TEMP"), Legend: "{{UUID}}: temperature", RightUnit: units.Celsius, Proof: moves("work", 20)},
				{Expr: ofOurs("DCGM_FI_DEV_POWER_USAGE"), Legend: "{{UUID}}: power", RightUnit: units.Watt, Proof: moves("work", 20)}}},
	},
}

// full are the colours of shares of what can run out.
var full = []Level{{From: 0.8, Color: "orange"}, {From: 0.95, Color: "red"}}

// toBoards lead from a row to the boards of its runtime.
var toBoards = []Link{{"Overview", rowURL(uidOf("overview"))}, {"Guard and incidents", rowURL(uidOf("guard"))}, {"Operations", rowURL(uidOf("operations"))}, {"Streams", rowURL(uidOf("streams"))}, {"Jobs", rowURL(uidOf("jobs"))}}

// rowURL is that of a board, for the runtime of a row, in the time range.
func rowURL(uid string) string {
	return "/d/" + uid + "?${__url_time_range}&${datasource:queryparam}&${job:queryparam}&var-instance=${__data.fields.instance}&var-device=${__data.fields.device}"
}

// notSoon is longer than a day; it stands for no end in sight.
const notSoon = 1_000_000_000

// timeToFull is the shortest of all, 0 where requests are refused.
func timeToFull() string {
	all := strconv.Itoa(notSoon) + ` * gpumem_health{@, state="ok"} ^ 0`
	for _, of := range [][2]string{{"now", refusing}, {"device", deviceFull}, {"budget", budgetFull}, {"pool", poolFull}} {
		all += ` or label_replace(` + of[1] + `, "what", "` + of[0] + `", "", "")` // or those of one runtime would be one
	}
	return `min(` + all + `)`
}

// annotations are what every board marks but that of the fleet.
var annotations = []Annotation{
	{Name: "Findings", Color: "red", Title: "Memory bug: {{kind}}", Query: Query{Expr: counts("kind", `gpumem_findings_total{@, kind!="oom"}`), Proof: moves("misuse", 1, "kind", "double-free"), Raw: "compared with itself"}},
	{Name: "Starts", Color: "orange", Title: "Runtime started", At: true, Query: Query{Expr: `1000 * max by (instance, device) (gpumem_runtime_start_time_seconds{@})`, Proof: Proof{Scene: "quiet", After: 1.7e12}}},
	{Name: "Ends", Color: "yellow", Title: "Runtime ended", At: true, Query: Query{Expr: `1000 * max by (instance, device) (max_over_time(timestamp(gpumem_runtime_start_time_seconds{@})[10m:]) unless last_over_time(gpumem_runtime_start_time_seconds{@}[2m]))`,
		Proof: Proof{Scene: "end", After: 1.7e12}}},
	{Name: "Guard switches", Color: "purple", Title: "Guard: {{mode}}", Query: Query{Expr: rises("mode", `gpumem_guard_mode{@}`), Proof: moves("hunt", 1, "mode", "hunt")}},
	{Name: "Dumps", Color: "blue", Title: "Dump: {{trigger}}", Query: Query{Expr: counts("trigger", `gpumem_dumps_total{@}`), Proof: moves("corrupt", 1, "trigger", "finding"), Raw: "compared with itself"}},
}

// rises is where a sum is higher than it was a minute ago, and was not rising
// before, or was not there: of what goes on the beginning is marked. A minute is the step of
// annotations, so a change is one point; a scrape that was missed hides none.
func rises(by, series string) string {
	return sumOf(by, series) + ` > ` + before("1m", by, series) + notYet(by, series)
}

// counts is where a counter rises; what begins at once with a process is new, too,
// whatever the one before it had.
func counts(by, series string) string {
	now := sumOf(by, series)
	return `(` + now + ` > ` + before("1m", by, series) + ` or ` + now + ` > 0 and on (instance, device) time() - max by (instance, device) (gpumem_runtime_start_time_seconds{@}) < 60)` + notYet(by, series)
}

func notYet(by, series string) string {
	return ` unless ` + before("1m", by, series) + ` > (` + before("5m", by, series) + ` or 0 * ` + before("1m", by, series) + `)`
}

func before(ago, by, series string) string {
	return sumOf(by, `last_over_time(`+series+`[5m] offset `+ago+`)`)
}

func sumOf(by, of string) string { return `sum by (instance, device, ` + by + `) (` + of + `)` }

// inRow is a panel that leads to the operations board, alone in a row that is folded.
func inRow(row string, p Panel) Panel {
	p.Row, p.Fold, p.Width, p.Link = row, true, 24, "operations#"+p.Title
	return p
}

// largest leaves the n series that were highest within the time range, which are
// told apart by the labels.
func largest(n int, labels, of string) string {
	return `(` + of + `) and on (` + labels + `) ` + top(n, of)
}

// others is the sum of those that largest leaves out.
func others(n int, labels, of string) string {
	return `sum((` + of + `) unless on (` + labels + `) ` + top(n, of) + `)`
}

// smallest leaves the n series that were lowest within the time range.
func smallest(n int, labels, of string) string {
	return fmt.Sprintf(`(%[3]s) and on (%[2]s) bottomk(%[1]d, min_over_time((%[3]s)[$__range:$__rate_interval] @ end()) or (%[3]s))`, n, labels, of)
}

// top is the n series that were highest within the time range. One that began after its last step counts by what it is
// now, or all would be others for that long.
func top(n int, of string) string {
	return fmt.Sprintf(`topk(%d, max_over_time((%[2]s)[$__range:$__rate_interval] @ end()) or (%[2]s))`, n, of)
}

// ofLargestPools is of the three runtimes whose pools hold most.
func ofLargestPools(of string) string {
	const by = "job, instance, device"
	return `max by (` + by + `) (` + of + `) and on (` + by + `) ` + top(3, `max by (`+by+`) (gpumem_pool_reserved_bytes{@})`)
}

// ofFullestGPUs is of the two of which most is in use.
func ofFullestGPUs(of string) string {
	return endOf("uuid", `(`+of+`) and on (uuid) `+top(2, deviceTotal+` - `+deviceFree))
}

// heldAtPeak is what each tag held live at the peak of the last minute.
const heldAtPeak = `sum by (tag) (gpumem_tag_window_peak_bytes{@})`

// healthStates are the values that healthNumber gives to the states of health.
var healthStates = []State{{"0", "ok", "green"}, {"1", "degraded", "orange"}, {"2", "poisoned", "red"}, {"3", "closed", "text"}}

const healthNumber = `gpumem_health{@, state="degraded"} or 2 * gpumem_health{@, state="poisoned"} or 3 * gpumem_health{@, state="closed"}`

// Shares of what can run out: what was taken at most in the last minute, or is
// now. Memory that lives for milliseconds is not there at a scrape.
const (
	livePeak    = `gpumem_memory_window_peak_bytes{@, state="live", window="60s"}`
	budgetShare = `max by (job, instance, device) (gpumem_budget_charged_bytes{@} or ` + livePeak + `) / max by (job, instance, device) (gpumem_budget_limit_bytes{@} > 0)`
	poolShare   = `max by (job, instance, device) (gpumem_pool_used_bytes{@} or ` + livePeak + `) / max by (job, instance, device) (gpumem_pool_limit_bytes{@} > 0)`
)

// found is how many findings are new in the time range: what a series grew by,
// across restarts, and of one that was not there before what it began with.
func found(by, kinds string) string {
	series := `gpumem_findings_total{@, ` + kinds + `}`
	grown := `increase(` + series + `[$__range])`
	first := `(min_over_time(` + series + `[$__range]) unless last_over_time(` + series + `[10m] offset $__range))`
	return `round(sum` + by + ` (` + grown + ` + ` + first + ` or ` + grown + ` or ` + first + `))`
}

const newFindings = "over the time range: one finding a week must not vanish from the board"

// firing are alerts that fire.
func firing(severity string) string {
	return `max by (` + alertIdentity + `) (ALERTS{` + strings.TrimSuffix(`@process, alertname=~"Fencepost.+", alertstate="firing", `+severity, ", ") + `})`
}

const alertIdentity = `severity, alertname, instance, device, kind, tag`

// alertLabels adds to alerts where each of them leads.
func alertLabels(of string) string {
	for _, a := range Alerts() {
		of = `label_replace(label_replace(` + of + `, "board", "` + uidOf(a.Board) + `", "alertname", "` + a.Name + `"), "runbook", "` + strings.ToLower(a.Name) + `", "alertname", "` + a.Name + `")`
	}
	return of
}

// When the device, the budget and the pool are full: what is left over how fast it
// goes, where even the least that was in use has risen, for ten minutes at least.
const (
	refusing   = `0 * (sum by (job, instance, device) (rate(gpumem_refusals_total{@, reason=~"out_of_budget|out_of_memory"}[$__rate_interval])) > 0)`
	deviceFull = `(gpumem_device_free_bytes{@} / (-deriv(gpumem_device_free_bytes{@}[10m]) > 0)` +
		` and (gpumem_device_total_bytes{@} - max_over_time(gpumem_device_free_bytes{@}[5m])) > 1.02 * (gpumem_device_total_bytes{@} - max_over_time(gpumem_device_free_bytes{@}[5m] offset 5m))` +
		` and gpumem_device_free_bytes{@} offset 10m) < 86400`
	budgetFull = `((gpumem_budget_limit_bytes{@} - gpumem_budget_charged_bytes{@} > 0) / (deriv(gpumem_budget_charged_bytes{@}[10m]) > 0)` +
		` and min_over_time(gpumem_budget_charged_bytes{@}[5m]) > 1.02 * min_over_time(gpumem_budget_charged_bytes{@}[5m] offset 5m)` +
		` and gpumem_budget_charged_bytes{@} offset 10m) < 86400`
	poolFull = `(((gpumem_pool_limit_bytes{@} > 0) - gpumem_pool_used_bytes{@} > 0) / (deriv(gpumem_pool_used_bytes{@}[10m]) > 0)` +
		` and min_over_time(gpumem_pool_used_bytes{@}[5m]) > 1.02 * min_over_time(gpumem_pool_used_bytes{@}[5m] offset 5m)` +
		` and gpumem_pool_used_bytes{@} offset 10m) < 86400`
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
	return endOf("uuid", how+` by (`+identity+`) (`+series+` * on (job, instance, device) group_left (`+identity+`) gpumem_device_info{@})`)
}

// endOf leaves the end of a UUID, that a legend has room for. Of those of one machine
// the beginnings are often alike.
func endOf(label, of string) string {
	return fmt.Sprintf(`label_replace(%[2]s, "%[1]s", "…$1", "%[1]s", ".*-([^-]+-[^-]+)")`, label, of)
}

// ofOurs is a metric of dcgm-exporter, which calls UUID what we call uuid, of
// the GPUs that the chosen runtimes use.
func ofOurs(metric string) string {
	return endOf("UUID", largest(3, "UUID", `max by (UUID) (`+metric+` and on (UUID) label_replace(gpumem_device_info{@}, "UUID", "$1", "uuid", "(.*)"))`))
}

// eitherOf asks for the conventional metric of requests, or else the example's.
func eitherOf(begin, end string) string {
	return begin + "http_server_request_duration_seconds" + end + " or " + begin + "service_request_duration_seconds" + end
}
