package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// report is what a run saw. Durations are nanoseconds in JSON.
type report struct {
	Seed uint64 `json:"seed"`
	// Sent is how many requests were sent, Skipped how many were due while as
	// many as may be were in flight.
	Sent    uint64 `json:"sent"`
	Skipped uint64 `json:"skipped"`
	// OK is how many results were right and Wrong how many were not. Rows are
	// those of the right ones.
	OK    uint64 `json:"ok"`
	Wrong uint64 `json:"wrong"`
	Rows  uint64 `json:"rows"`
	// Refused counts the refusals by status and reason, as "503
	// out_of_budget".
	Refused map[string]uint64 `json:"refused"`
	// Failed is how many requests got no answer, or one that a working
	// service does not give, and FirstFailure what the first of them was.
	Failed       uint64 `json:"failed"`
	FirstFailure string `json:"first_failure,omitempty"`
	// Took is how long the run took, Latency how long right results did.
	Took    time.Duration `json:"took"`
	Latency latency       `json:"latency"`
}

// latency is a distribution of durations.
type latency struct {
	P50 time.Duration `json:"p50"`
	P90 time.Duration `json:"p90"`
	P99 time.Duration `json:"p99"`
	Max time.Duration `json:"max"`
}

// latencyOf sorts the durations.
func latencyOf(all []time.Duration) latency {
	if len(all) == 0 {
		return latency{}
	}
	slices.Sort(all)
	quantile := func(percent int) time.Duration { return all[(len(all)*percent+99)/100-1] }
	return latency{P50: quantile(50), P90: quantile(90), P99: quantile(99), Max: quantile(100)}
}

// clean reports whether every answer was one that a working service gives,
// and there was a result among them.
func (r report) clean() bool { return r.Wrong == 0 && r.Failed == 0 && r.OK > 0 }

// print writes the report for people. What the service said is quoted,
// because it may be anything.
func (r report) print(w io.Writer) {
	short := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	fmt.Fprintf(w, "requests  %d sent in %v, %d skipped; seed %d\n", r.Sent, r.Took.Round(time.Millisecond), r.Skipped, r.Seed)
	fmt.Fprintf(w, "results   %d right, %d wrong, %d rows\n", r.OK, r.Wrong, r.Rows)
	fmt.Fprintf(w, "latency   p50 %v, p90 %v, p99 %v, max %v\n", short(r.Latency.P50), short(r.Latency.P90), short(r.Latency.P99), short(r.Latency.Max))
	for _, reason := range slices.Sorted(maps.Keys(r.Refused)) {
		fmt.Fprintf(w, "refused   %d with %+q\n", r.Refused[reason], reason)
	}
	fmt.Fprintf(w, "failed    %d", r.Failed)
	if r.FirstFailure != "" {
		fmt.Fprintf(w, ", the first %+q", r.FirstFailure)
	}
	fmt.Fprintln(w)
}
