package boards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/units"
)

var operations = Board{
	File: "operations", Title: "Fencepost: operations",
	Description: "What each runtime is asked to do, how long that takes, and what becomes of launches and their waits.",
	Annotations: annotations,
	Panels: []Panel{
		{Row: "Rates", Title: "Operations", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12, Stacked: true,
			Shows: "Calls a second by operation, whatever came of them: the five that are most, and the others.",
			Bad:   "Allocations rise and requests do not: memory is taken piecemeal that could be reserved or reused. Allocations exceed frees for long: see \"Growth by tag\" on the overview.",
			Do:    "Allocate for a request at once, from a reservation.",
			Queries: []Query{
				{Expr: largest(5, "op", operationsByName), Legend: "{{op}}", Proof: moves("work", 30, "op", "allocate")},
				{Expr: others(5, "op", operationsByName), Legend: "others", Proof: moves("various", 1)}}},
		{Title: "Failed operations", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12, None: "none",
			Shows: "Calls a second that returned an error, by operation and reason, the five that are most; and calls that the driver failed.",
			Bad:   "use_after_free, stream_misuse, out_of_bounds: errors of the program. driver_error: the device. The rest is memory, see the overview.",
			Do:    "The error's text says what to do; a memory bug has an incident file too.",
			Queries: []Query{
				{Expr: largest(5, "op, result", `sum by (op, result) (rate(gpumem_operations_total{@, result!="ok"}[$__rate_interval])) > 0`), Legend: "{{op}}: {{result}}", Exemplars: true, Proof: moves("refuse", 5, "op", "allocate", "result", "out_of_budget")},
				{Expr: `sum(rate(gpumem_driver_failures_total{@}[$__rate_interval])) > 0`, Legend: "the driver", Proof: moves("oom", 1)}}},
		{Row: "Latency", Title: "Latency by operation", Kind: TimeSeries, Unit: units.Seconds, Width: 24, Log: true, None: "no calls",
			Shows: "How long calls took on the host, 99th percentile and median of the five slowest operations: from native histograms within some percent, where Prometheus scrapes them (scrape_native_histograms), " +
				"or else from classic buckets, which end at 10 s. A point is a call that was traced; it leads to its trace.",
			Bad:    "The 99th percentile leaves the median by orders of magnitude: the driver serialises, or a reap got in the way.",
			Do:     "Open a slow point's trace. Allocate from fewer threads, or keep blocks longer.",
			States: beyondBuckets,
			Queries: []Query{
				{Expr: largest(5, "op", latency(0.99)), Legend: "{{op}}, 99 %", Exemplars: true, Proof: moves("slow", 0.01, "op", "allocate")},
				{Expr: largest(5, "op", latency(0.5)), Legend: "{{op}}, 50 %", Proof: moves("slow", 0.01, "op", "allocate")}}},
		{Title: "Allocations by duration", Kind: Heatmap, Unit: units.OpsPerSecond, Width: 12, None: "no allocations",
			Shows:   "How many allocations a second took how long.",
			Bad:     "A second band appears above the first: some allocations meet something that others do not.",
			Do:      "Compare its beginning with the pool's size: a pool that grows asks the driver for memory.",
			Queries: []Query{{Expr: `sum by (le) (rate(gpumem_operation_duration_seconds_bucket{@, op="allocate"}[$__rate_interval]))`, Legend: "{{le}}", Proof: moves("work", 30, "le", "+Inf")}}},
		{Title: "Time from free to reusable", Kind: TimeSeries, Unit: units.Seconds, Width: 12, Log: true, None: "no frees",
			Shows:  "From a free's request until the runtime knew that the device had passed it: mean, median and 99th percentile, of which the buckets end at 10 s.",
			Bad:    "Longer than a request takes: what one request frees, the next cannot have. It ends while memory is pending: the device makes no progress on a stream.",
			Do:     "Free earlier, or on the stream of the last use; look for a stream that is behind on the streams board.",
			States: beyondBuckets,
			Queries: []Query{
				{Expr: `histogram_quantile(0.99, sum by (le) (rate(gpumem_free_to_reusable_seconds_bucket{@}[$__rate_interval]))) >= 0`, Legend: "99 %", Proof: moves("late", 0.2)},
				{Expr: `histogram_quantile(0.5, sum by (le) (rate(gpumem_free_to_reusable_seconds_bucket{@}[$__rate_interval]))) >= 0`, Legend: "50 %", Proof: moves("late", 0.1)},
				{Expr: `sum(rate(gpumem_free_to_reusable_seconds_sum{@}[$__rate_interval])) / (sum(rate(gpumem_free_to_reusable_seconds_count{@}[$__rate_interval])) > 0)`, Legend: "mean", Proof: moves("late", 0.1)}}},
		{Row: "Launches and waits", Title: "Launches", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12,
			Shows: "Launches a second, those of them that used what another stream wrote last, and those that were prepared and given up.",
			Bad:   "Aborted launches are frequent: work is prepared that cannot be enqueued.",
			Do:    "See the program's log for why it gives up between prepare and enqueue.",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_launches_total{@}[$__rate_interval]))`, Legend: "finished", Proof: moves("work", 30)},
				{Expr: `sum(rate(gpumem_launches_cross_stream_total{@}[$__rate_interval]))`, Legend: "across streams", Proof: moves("cross", 5)},
				{Expr: `sum(rate(gpumem_launches_aborted_total{@}[$__rate_interval]))`, Legend: "aborted", Proof: moves("abort", 5)}}},
		{Title: "Waits", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12,
			Shows: "Dependencies on other streams a second: those for which a wait was queued, and those that needed none, because an order was there already; on the right their share.",
			Bad:   "Queued waits rise with the load while none are elided: streams hand every buffer around. The share falls after a release: an order that came for free is gone.",
			Do:    "Keep a request on one stream; cross where it pays. Compare the traces of a request before and after: links show what waited for what.",
			Queries: []Query{
				{Expr: `sum by (outcome) (rate(gpumem_waits_total{@}[$__rate_interval]))`, Legend: "{{outcome}}", Proof: moves("cross", 5, "outcome", "queued")},
				{Expr: `sum(rate(gpumem_waits_total{@, outcome="elided"}[$__rate_interval])) / (sum(rate(gpumem_waits_total{@}[$__rate_interval])) > 0)`,
					Legend: "share elided", RightUnit: units.PercentUnit, Proof: moves("cross", 0.1)}}},
		{Row: "What is the device doing?", Title: "Launches at once on the device", Kind: TimeSeries, Unit: units.Short, Width: 12, Stacked: true, None: "none was timed",
			Shows: "How many launches the device works on at a time, on average, by name: the five that are most, and the others. 1 is a device with one of them at any time. One launch in 250 is timed and stands for all.",
			Bad:   "Much below 1 while requests wait: the device has nothing to do, and the host or the waits are to blame. One name is nearly all of it: that launch is what to make faster.",
			Do:    "See \"Held up by waits\" for the waits, \"Latency by operation\" for the host.",
			Queries: []Query{
				{Expr: largest(5, "launch", atOnce), Legend: "{{launch}}", Proof: moves("device", 0.1, "launch", "merge")},
				{Expr: others(5, "launch", atOnce), Legend: "others", Proof: moves("names", 0.1)}}},
		heldUpByWaits,
		{Title: "Time on the device by launch", Kind: TimeSeries, Unit: units.Seconds, Width: 24, Log: true, None: "none was timed",
			Shows:  "99th percentile of the time that launches took on the device, and of the time that waits held them up before, the five largest of each; classic buckets end at 10 s. A point is a launch that was traced.",
			Bad:    "A launch takes longer than before with the same work: others are on the device with it. Held up is longer than the work: the wait is what its request waits for.",
			Do:     "Open a sampled request's trace: gpumem.device shows both, and what was waited for.",
			States: beyondBuckets,
			Queries: []Query{
				{Expr: largest(5, "launch", launchTime("gpumem_launch_device_seconds")), Legend: "{{launch}}, on the device", Exemplars: true, Proof: moves("device", 0.005, "launch", "merge")},
				{Expr: largest(5, "launch", launchTime("gpumem_launch_held_seconds")), Legend: "{{launch}}, held up", Proof: moves("device", 0.005, "launch", "query")}}},
	},
}

// heldUpByWaits is on the overview, too.
var heldUpByWaits = Panel{Title: "Held up by waits", Kind: TimeSeries, Unit: units.Short, Width: 12, Stacked: true, None: "no wait held a launch up",
	Shows: "How many launches at a time stand on the device and wait for another stream, by who waits for whom: the five that are most, and the others. The order is exact: each wait is for work on the same block, or on memory that is used again.",
	Bad:   "It is as much as what the device works on: streams that could run side by side take turns.",
	Do:    "Give the launches blocks of their own, or the reader a copy. `fencepost why` and the span gpumem.device of a sampled request name the block. \"allocation\" waits for memory that others used: raise the pool's limit, or free earlier.",
	Queries: []Query{
		{Expr: largest(5, "launch, waited_for", heldUp), Legend: "{{launch}} for {{waited_for}}", Proof: moves("device", 0.1, "launch", "query", "waited_for", "merge")},
		{Expr: others(5, "launch, waited_for", heldUp), Legend: "others", Proof: moves("names", 0.1)}}}

const (
	atOnce = `sum by (launch) (rate(gpumem_launch_device_seconds_sum{@}[$__rate_interval])) > 0`
	heldUp = `sum by (launch, waited_for) (rate(gpumem_device_wait_seconds_total{@}[$__rate_interval])) > 0`
)

// launchTime is the 99th percentile of a histogram by launch, of native buckets where there are any.
func launchTime(metric string) string {
	return `histogram_quantile(0.99, sum by (launch) (rate(` + metric + `{@}[$__rate_interval]))) > 0 or histogram_quantile(0.99, sum by (le, launch) (rate(` + metric + `_bucket{@}[$__rate_interval]))) > 0`
}

const operationsByName = `sum by (op) (rate(gpumem_operations_total{@}[$__rate_interval])) > 0`

// beyondBuckets says of a quantile in the last bucket what is known of it.
var beyondBuckets = []State{{"10", "> 10 s", "red"}}

// latency is a quantile by operation: of native buckets where there are any, or
// else of classic ones.
func latency(quantile float64) string {
	q := fmt.Sprintf("histogram_quantile(%v, sum by ", quantile)
	return q + `(op) (rate(gpumem_operation_duration_seconds{@}[$__rate_interval]))) >= 0 or ` + q + `(le, op) (rate(gpumem_operation_duration_seconds_bucket{@}[$__rate_interval]))) >= 0`
}
