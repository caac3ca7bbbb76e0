package loadgen

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Report is what a run saw. Durations are nanoseconds in JSON.
type Report struct {
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
	Latency Latency       `json:"latency"`
}

// Latency is a distribution of durations, each right within 5 %.
type Latency struct {
	P50 time.Duration `json:"p50"`
	P90 time.Duration `json:"p90"`
	P99 time.Duration `json:"p99"`
	Max time.Duration `json:"max"`
}

// Clean reports whether every answer was one that a working service gives,
// and there was a result among them.
func (r Report) Clean() bool { return r.Wrong == 0 && r.Failed == 0 && r.OK > 0 }

// Print writes the report for people. What the service said is quoted,
// because it may be anything.
func (r Report) Print(w io.Writer) {
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

func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
