package boards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/units"
)

var jobs = Board{
	File: "jobs", Title: "Fencepost: jobs",
	Description: "Which jobs need how much memory, what of that is wasted, who waits for whom, and what a request costs. A job counts when it ends.",
	Annotations: annotations,
	Panels: []Panel{
		{Row: "Who needs how much?", Title: "Memory held by jobs", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, Stacked: true, None: "no job ended",
			Shows: "How many bytes jobs of a name held on average, by the bytes times seconds of those that ended: the five that are most, and the others.",
			Bad:   "One name takes most of the memory while others wait. It rises and the number of requests does not: each needs more, or keeps it for longer.",
			Do:    "See \"Peak by job\" for how much one needs, and \"What a job costs\" for whether it keeps it for longer. Free what a job is done with before it ends.",
			Queries: []Query{
				{Expr: largest(5, "tag", heldByJobs), Legend: "{{tag}}", Proof: moves("jobs", mib, "tag", "sort")},
				{Expr: others(5, "tag", heldByJobs), Legend: "others", Proof: moves("jobnames", 100_000)}}},
		{Title: "Used and wasted", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12,
			Shows: "What is live; what jobs that ended had reserved and did not use, on average; and what the pool holds of the device and is in no block.",
			Bad:   "Reserved and unused is as much as live: jobs wait for memory that lies idle. Cached stays far above what the next minutes need, and others want the device.",
			Do:    "Reserve what Job.Account says that jobs of the name needed, see \"Reserved and not used by job\". Cached: lower the pool's limit, or TrimPool.",
			Queries: []Query{
				{Expr: `sum(gpumem_memory_bytes{@, state="live"})`, Legend: "live", Proof: moves("hold", 60*mib)},
				{Expr: `sum(rate(gpumem_job_unused_byte_seconds_total{@}[$__rate_interval]))`, Legend: "reserved, not used", Proof: moves("jobs", mib)},
				{Expr: `sum(gpumem_pool_cached_bytes{@})`, Legend: "cached in the pool", Proof: moves("flash", mib)}}},
		{Title: "Peak by job", Kind: TimeSeries, Unit: units.BytesIEC, Width: 12, Log: true, None: "no job ended",
			Shows: "The most memory that was live at once of a job, 99th percentile and median of the five largest names: from native histograms within some percent, or else from classic buckets, powers of two from 64 KiB to 256 GiB. A point is a job that was traced.",
			Bad:   "The 99th percentile leaves the median: a few requests are much larger than the others, and a reservation for all that covers them wastes what the others do not need.",
			Do:    "Open a large point's trace: its span gpumem.job has the bill. Reserve by the size of the request.",
			Queries: []Query{
				{Expr: largest(5, "tag", jobQuantile(0.99, "gpumem_job_peak_bytes", "tag")), Legend: "{{tag}}, 99 %", Exemplars: true, Proof: moves("jobs", mib, "tag", "sort")},
				{Expr: largest(5, "tag", jobQuantile(0.5, "gpumem_job_peak_bytes", "tag")), Legend: "{{tag}}, 50 %", Proof: moves("jobs", mib, "tag", "sort")}}},
		{Title: "Reserved and not used by job", Kind: TimeSeries, Unit: units.PercentUnit, Width: 12, None: "nothing was reserved",
			Shows:   "Share of what jobs held, reserved or live, that was reserved and not live, by name: the five that waste most bytes.",
			Bad:     "Above a half: the reservation is twice what its jobs need, or they reserve long before they allocate.",
			Do:      "Lower the reservation to the 99th percentile of \"Peak by job\".",
			Queries: []Query{{Expr: largest(5, "tag", wasteOfJobs), Legend: "{{tag}}", Proof: moves("jobs", 0.1, "tag", "sort")}}},
		{Title: "Jobs that needed more than predicted", Kind: TimeSeries, Unit: units.PercentUnit, Width: 12, None: "nothing was predicted",
			Shows:   "Of the jobs of which it was known what they would need (fencepost.Shape, Admit), the share that needed more, by name: the five largest.",
			Bad:     "Above 1 % for longer than a release takes to be learned: what the jobs need does not follow from their shape. Such a job takes what it lacks from the budget, and is refused where there is no room.",
			Do:      "Name what the memory depends on with fencepost.Shape: two numbers at most, which grow with it. Its trace says what it needed.",
			Queries: []Query{{Expr: largest(5, "tag", shortOfJobs), Legend: "{{tag}}", Proof: moves("predicted", 0.2, "tag", "batch")}}},
		{Title: "Predicted and not needed", Kind: TimeSeries, Unit: units.PercentUnit, Width: 12, None: "nothing was predicted",
			Shows:   "Share of the bytes that jobs were predicted to need, and did not, by name: the five largest.",
			Bad:     "Above 15 %: jobs of one shape differ in what they need, and wait for memory that lies idle.",
			Do:      "Name what the memory depends on with fencepost.Shape, or let jobs give back what they will not need (Job.Settle).",
			Queries: []Query{{Expr: largest(5, "tag", overOfJobs), Legend: "{{tag}}", Proof: moves("predicted", 0.2, "tag", "report")}}},
		{Row: "Who waits for whom?", Title: "Jobs at once, and what they wait for", Kind: TimeSeries, Unit: units.Short, Width: 12, None: "no job ended",
			Shows: "How many jobs there are at a time, on average, and how many of them wait for memory, for a stream, and on the device behind other jobs.",
			Bad:   "Most of the jobs wait for one of them: that is what the service lacks.",
			Do:    "Memory: see who holds it, above. Stream: raise Config.Streams, or admit fewer. On the device: see \"Held up by waits\".",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_job_seconds_total{@}[$__rate_interval]))`, Legend: "jobs", Proof: moves("jobs", 1)},
				{Expr: `sum by (for) (rate(gpumem_job_wait_seconds_sum{@}[$__rate_interval]))`, Legend: "wait for {{for}}", Proof: moves("jobs", 0.2, "for", "memory"), Also: []Proof{moves("jobs", 0.2, "for", "stream")}},
				{Expr: `sum(rate(gpumem_job_device_wait_seconds_total{@}[$__rate_interval]))`, Legend: "wait on the device", Proof: moves("jobs", 0.1)}}},
		{Title: "Who waits", Kind: TimeSeries, Unit: units.Short, Width: 12, Stacked: true, None: "no job waited",
			Shows: "How many jobs of a name wait at a time, on average, and for what: the five that are most for memory or a stream, and the five that are most on the device.",
			Bad:   "A name waits whose requests must be quick, while another holds the memory.",
			Do:    "Give the waiting one a smaller reservation, which may pass others (Config.ReservePasses), or admit fewer of those that hold most.",
			Queries: []Query{
				{Expr: largest(5, "tag, for", `sum by (tag, for) (rate(gpumem_job_wait_seconds_sum{@}[$__rate_interval])) > 0`), Legend: "{{tag}} for {{for}}", Proof: moves("jobs", 0.2, "tag", "sort", "for", "memory")},
				{Expr: largest(5, "tag", `sum by (tag) (rate(gpumem_job_device_wait_seconds_total{@}[$__rate_interval])) > 0`), Legend: "{{tag}} on the device", Proof: moves("jobs", 0.1, "tag", "query")}}},
		{Title: "How long a job waits", Kind: TimeSeries, Unit: units.Seconds, Width: 12, Log: true, None: "no job waited",
			Shows:   "99th percentile of the time that a job waited for memory and for its stream, the five largest; classic buckets end at 60 s. A point is a job that was traced.",
			Bad:     "It is a visible part of what a request may take.",
			Do:      "Open a slow point's trace: gpumem.job says how long it waited for what, and the trace who it was.",
			States:  []State{{"60", "> 60 s", "red"}},
			Queries: []Query{{Expr: largest(5, "tag, for", jobQuantile(0.99, "gpumem_job_wait_seconds", "tag, for")), Legend: "{{tag}} for {{for}}", Exemplars: true, Proof: moves("jobs", 0.02, "tag", "sort", "for", "memory")}}},
		heldUpByWaits,
		{Row: "What does a request cost?", Title: "What a job costs", Kind: TimeSeries, Unit: units.Short, Width: 12, Log: true, None: "no job ended",
			Shows: "Bytes times seconds of memory that one job took, 99th percentile and mean of the five dearest names. A point is a job that was traced.",
			Bad:   "The mean rises after a release: requests keep memory for longer, or need more.",
			Do:    "Open a dear point's trace: its span gpumem.job has the bill, with the peak, what was reserved and not used, and the waits, during which a job holds its memory.",
			Queries: []Query{
				{Expr: largest(5, "tag", jobQuantile(0.99, "gpumem_job_byte_seconds", "tag")), Legend: "{{tag}}, 99 %", Exemplars: true, Proof: moves("jobs", 10_000, "tag", "sort")},
				{Expr: largest(5, "tag", `sum by (tag) (rate(gpumem_job_byte_seconds_sum{@}[$__rate_interval])) / (sum by (tag) (rate(gpumem_job_byte_seconds_count{@}[$__rate_interval])) > 0)`), Legend: "{{tag}}, mean", Proof: moves("jobs", 10_000, "tag", "sort")}}},
		{Title: "Jobs ended", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12, Stacked: true, None: "no job ended",
			Shows: "Jobs a second that ended, by name, those that got no stream too: the five that are most, and the others.",
			Bad:   "It falls while requests come as before: they wait.",
			Do:    "See \"Jobs at once, and what they wait for\".",
			Queries: []Query{
				{Expr: largest(5, "tag", jobsEnded), Legend: "{{tag}}", Proof: moves("jobs", 1, "tag", "sort")},
				{Expr: others(5, "tag", jobsEnded), Legend: "others", Proof: moves("jobnames", 1)}}},
	},
}

const (
	heldByJobs = `sum by (tag) (rate(gpumem_job_byte_seconds_sum{@}[$__rate_interval])) > 0`
	unused     = `sum by (tag) (rate(gpumem_job_unused_byte_seconds_total{@}[$__rate_interval]))`
	// A name with which nothing is reserved is left out.
	wasteOfJobs = unused + ` / ((` + unused + ` + sum by (tag) (rate(gpumem_job_byte_seconds_sum{@}[$__rate_interval]))) > 0) > 0`
	shortOfJobs = `sum by (tag) (rate(gpumem_job_predictions_total{@, outcome="short"}[$__rate_interval])) / (sum by (tag) (rate(gpumem_job_predictions_total{@}[$__rate_interval])) > 0)`
	overOfJobs  = `sum by (tag) (rate(gpumem_job_prediction_error_bytes_total{@, error="over"}[$__rate_interval])) / (sum by (tag) (rate(gpumem_job_predicted_bytes_total{@}[$__rate_interval])) > 0)`
	jobsEnded   = `sum by (tag) (rate(gpumem_job_wait_seconds_count{@, for="stream"}[$__rate_interval])) > 0`
)

// jobQuantile is a quantile of a histogram of jobs, of native buckets where there are any, or else of classic ones.
func jobQuantile(quantile float64, metric, by string) string {
	q := fmt.Sprintf("histogram_quantile(%v, sum by ", quantile)
	return q + `(` + by + `) (rate(` + metric + `{@}[$__rate_interval]))) > 0 or ` + q + `(le, ` + by + `) (rate(` + metric + `_bucket{@}[$__rate_interval]))) > 0`
}
