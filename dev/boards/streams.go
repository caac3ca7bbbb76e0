package boards

func streams() Board {
	return Board{
		File: "streams", Title: "Fencepost: streams and fences",
		Description: "Who has the streams, who waits for one, and what orders their work.",
		Annotations: annotationsOf(),
		Rows:        []Row{streamsLeases(), streamsWaiting(), streamsFences()},
	}
}

func streamsLeases() Row {
	return Row{Title: "Leases", Panels: []Panel{
		{
			Title: "Streams by state", Kind: TimeSeries, Unit: Count, Width: 12, Stacked: true,
			Shows: "Streams that are leased, idle in the pool, and adopted from callers.",
			Bad:   "Leased reaches the limit: the next caller waits or is refused. Adopted climbs: streams are not given up.",
			Do:    "Release leases at the end of a request; raise the limit (FENCEPOST_STREAMS) if the device can use more.",
			Queries: []Query{
				{Expr: `sum by (state) (gpumem_streams{@})`, Legend: "{{state}}", Proof: moves("adopt", 1, "state", "adopted")},
			},
		},
		{
			Title: "Share of the streams leased", Kind: TimeSeries, Unit: Share, Width: 6,
			Shows:   "Leased streams of those that the pool may have, by runtime.",
			Bad:     "1 for long.",
			Do:      "See the oldest lease: one that is forgotten looks like one that is busy.",
			Queries: []Query{{Expr: `max by (instance, device) (gpumem_streams{@, state="leased"} / ignoring(state) gpumem_streams_limit{@})`, Legend: "{{instance}} {{device}}", Proof: moves("exhaust", 0.4)}},
		},
		{
			Title: "Age of the oldest lease", Kind: TimeSeries, Unit: Seconds, Width: 6,
			Shows:   "How long ago the lease was taken that is held longest.",
			Bad:     "It climbs steadily in a service that leases for a request: one was forgotten.",
			Do:      "StreamPool.Leases has the tag and the stack of who took it.",
			Queries: []Query{{Expr: `max by (instance, device) (gpumem_stream_oldest_lease_seconds{@})`, Legend: "{{instance}} {{device}}", Proof: moves("quiet", 3)}},
		},
	}}
}

func streamsWaiting() Row {
	return Row{Title: "Waiting for a stream", Panels: []Panel{
		{
			Title: "Callers waiting", Kind: TimeSeries, Unit: Count, Width: 8,
			Shows:   "Callers that wait for a lease now.",
			Bad:     "Above zero for long: more work is admitted than there are streams.",
			Do:      "Admit fewer requests at a time, or raise the limit.",
			Queries: []Query{{Expr: `sum by (instance, device) (gpumem_streams_waiting{@})`, Legend: "{{instance}} {{device}}", Proof: moves("exhaust", 1)}},
		},
		{
			Title: "Time waited for a lease", Kind: TimeSeries, Unit: Seconds, Width: 8, None: "no leases",
			Shows: "How long a caller waited for its lease, on average.",
			Bad:   "A visible part of a request's time.",
			Do:    "Lease later and release earlier; lease once for a request.",
			Queries: []Query{{Expr: `sum(rate(gpumem_stream_wait_seconds_total{@}[$__rate_interval])) / sum(rate(gpumem_stream_acquisitions_total{@}[$__rate_interval])) >= 0`,
				Legend: "mean", Proof: moves("queue", 0.01)}},
		},
		{
			Title: "Leases granted and refused", Kind: TimeSeries, Unit: OpsASecond, Width: 8,
			Shows: "Leases a second that were granted, and that were refused or given up while waiting.",
			Bad:   "Refused ones are requests that failed.",
			Do:    "Wait with Acquire and a deadline instead of TryAcquire, or shed load earlier.",
			Queries: []Query{
				{Expr: `sum(rate(gpumem_stream_acquisitions_total{@}[$__rate_interval]))`, Legend: "granted", Proof: moves("queue", 1)},
				{Expr: `sum(rate(gpumem_stream_refusals_total{@}[$__rate_interval]))`, Legend: "refused", Proof: moves("exhaust", 1)},
			},
		},
	}}
}

func streamsFences() Row {
	return Row{Title: "Fences", Panels: []Panel{
		{
			Title: "Launches under way", Kind: TimeSeries, Unit: Count, Width: 8,
			Shows:   "Launches that are prepared and not ended.",
			Bad:     "It stays up while nothing is launched: a prepare without a finish holds its blocks, and others wait for them.",
			Do:      "Use Runtime.Launch, which cannot forget the end.",
			Queries: []Query{{Expr: `sum by (instance, device) (gpumem_intents_open{@})`, Legend: "{{instance}} {{device}}", Proof: moves("intent", 1)}},
		},
		{
			Title: "Events of the driver", Kind: TimeSeries, Unit: Count, Width: 8,
			Shows:   "Events in existence: one for each launch that something may still have to wait for, and spare ones.",
			Bad:     "It climbs with the time instead of the load: accesses are kept that nothing will ever cover.",
			Do:      "See pending memory and the oldest lease; report it if neither explains it.",
			Queries: []Query{{Expr: `sum by (instance, device) (gpumem_events{@})`, Legend: "{{instance}} {{device}}", Proof: moves("readers", 10)}},
		},
		{
			Title: "Blocks by state", Kind: TimeSeries, Unit: Count, Width: 8,
			Shows:   "Blocks that are live, pending and quarantined.",
			Bad:     "Pending climbs: frees are queued behind work that does not end.",
			Do:      "See the time from free to reusable on the board of operations.",
			Queries: []Query{{Expr: `sum by (state) (gpumem_blocks{@})`, Legend: "{{state}}", Proof: moves("heldback", 1, "state", "pending")}},
		},
	}}
}
