package boards

import "github.com/grafana/grafana-foundation-sdk/go/units"

var streams = Board{
	File: "streams", Title: "Fencepost: streams and fences",
	Description: "Who has the streams, who waits for one, and what orders their work.",
	Annotations: annotations,
	Panels: []Panel{
		{Row: "Leases", Title: "Streams by state", Kind: TimeSeries, Unit: units.Short, Width: 12, Stacked: true,
			Shows: "Streams that are leased, idle in the pool, and adopted from callers.",
			Bad:   "Leased reaches the limit: the next caller waits or is refused. Adopted climbs: streams are not given up.",
			Do:    "Release leases at the end of a request; raise the limit (FENCEPOST_STREAMS) if the device can use more.",
			Queries: []Query{
				{Expr: `sum by (state) (gpumem_streams{@})`, Legend: "{{state}}", Proof: moves("adopt", 1, "state", "adopted")}}},
		{Title: "Share of the streams leased", Kind: TimeSeries, Unit: units.PercentUnit, Width: 6,
			Shows:   "Leased streams of those that the pool may have: the five runtimes with the largest share.",
			Bad:     "1 for long.",
			Do:      "See the oldest lease: one that is forgotten looks like one that is busy.",
			Queries: []Query{{Expr: largest(5, "instance, device", `max by (instance, device) (gpumem_streams{@, state="leased"} / ignoring(state) gpumem_streams_limit{@})`), Legend: "{{instance}} {{device}}", Proof: moves("exhaust", 0.4)}}},
		{Title: "Age of the oldest lease", Kind: TimeSeries, Unit: units.Seconds, Width: 6,
			Shows:   "How long ago the lease was taken that is held longest: the five runtimes with the oldest.",
			Bad:     "It climbs steadily in a service that leases for a request: one was forgotten.",
			Do:      "StreamPool.Leases has the tag and the stack of who took it.",
			Queries: []Query{{Expr: largest(5, "instance, device", `max by (instance, device) (gpumem_stream_oldest_lease_seconds{@})`), Legend: "{{instance}} {{device}}", Proof: moves("quiet", 3)}}},
		{Row: "Waiting", Title: "Callers waiting", Kind: TimeSeries, Unit: units.Short, Width: 12,
			Shows: "Callers that wait for a lease now, of the five runtimes with most, and jobs that wait for their reservation of memory, in the order in which they came.",
			Bad:   "Above zero for long: more work is admitted than there are streams or memory, or the first job in line waits for more than will come free.",
			Do:    "Admit fewer requests at a time, or raise the limit. Jobs: see who holds memory, in the live view.",
			Queries: []Query{
				{Expr: largest(5, "instance, device", `sum by (instance, device) (gpumem_streams_waiting{@})`), Legend: "{{instance}} {{device}}", Proof: moves("exhaust", 1)},
				{Expr: `sum(gpumem_budget_waiting{@})`, Legend: "jobs, for memory", Proof: moves("line", 1)}}},
		{Title: "Leases granted and refused", Kind: TimeSeries, Unit: units.OpsPerSecond, Width: 12,
			Shows: "Leases a second that were granted, and that were refused or given up while waiting; on the right how long a caller waited, on average.",
			Bad:   "Refused ones are requests that failed. The wait is a visible part of a request's time.",
			Do:    "Wait with Acquire and a deadline instead of TryAcquire, or shed load earlier. Lease later and release earlier; lease once for a request.",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_stream_acquisitions_total{@}[$__rate_interval]))`, Legend: "granted", Proof: moves("queue", 1)},
				{Expr: `sum(rate(gpumem_stream_refusals_total{@}[$__rate_interval]))`, Legend: "refused", Proof: moves("exhaust", 1)},
				{Expr: `sum(rate(gpumem_stream_wait_seconds_total{@}[$__rate_interval])) / (sum(rate(gpumem_stream_acquisitions_total{@}[$__rate_interval])) > 0)`,
					Legend: "mean wait", RightUnit: units.Seconds, Proof: moves("queue", 0.01)}}},
		{Row: "Fences", Title: "Launches under way, and events", Kind: TimeSeries, Unit: units.Short, Width: 12,
			Shows: "Launches that are prepared and not ended, of the five runtimes with most; and the driver's events: one for each launch that something may still have to wait for, and spare ones.",
			Bad:   "Launches stay up while nothing is launched: a prepare without a finish holds its blocks, and others wait for them. Events climb with the time instead of the load: accesses are kept that nothing will ever cover.",
			Do:    "Use Runtime.Launch, which cannot forget the end. Events: see pending memory and the oldest lease; report it if neither explains it.",
			Queries: []Query{
				{Expr: largest(5, "instance, device", `sum by (instance, device) (gpumem_intents_open{@})`), Legend: "{{instance}} {{device}}", Proof: moves("intent", 1)},
				{Expr: `sum(gpumem_events{@})`, Legend: "events", RightUnit: units.Short, Proof: moves("readers", 10)}}},
		{Title: "Blocks by state", Kind: TimeSeries, Unit: units.Short, Width: 12,
			Shows:   "Blocks that are live, pending and quarantined.",
			Bad:     "Pending climbs: frees are queued behind work that does not end.",
			Do:      "See \"Time from free to reusable\" on the board of operations.",
			Queries: []Query{{Expr: `sum by (state) (gpumem_blocks{@})`, Legend: "{{state}}", Proof: moves("heldback", 1, "state", "pending")}}},
	},
}
