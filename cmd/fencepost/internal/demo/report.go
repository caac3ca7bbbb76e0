package demo

import (
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// Report is what the run did and found. Sizes are whole bytes.
type Report struct {
	Device  string  `json:"device"`
	Stack   string  `json:"stack"`
	Guard   string  `json:"guard"`
	Seconds float64 `json:"seconds"`
	// Operations are the successful calls by kind.
	Operations map[string]uint64 `json:"operations"`
	// Failures are the failed calls by kind and reason, such as
	// "allocate/out_of_budget".
	Failures map[string]uint64 `json:"failures"`
	Bytes    Bytes             `json:"bytes"`

	WaitsQueued uint64 `json:"waits_queued"`
	WaitsElided uint64 `json:"waits_elided"`
	// Launches are those of the sort and hash join, CrossStreamLaunches
	// those among them that used a block which another stream wrote last;
	// at least half must.
	Launches            uint64 `json:"launches"`
	CrossStreamLaunches uint64 `json:"cross_stream_launches"`
	// Results were compared with the CPU's, Wrong of them differ.
	Results uint64 `json:"results"`
	Wrong   uint64 `json:"wrong_results"`
	// TracesReplayed counts the whole replays of the recorded traces.
	TracesReplayed uint64 `json:"traces_replayed"`
	// Refused counts requests that the workloads were refused.
	Refused uint64 `json:"refused"`
	// RefusedUntruly counts refusals whose figures leave room for the request, of the whole
	// process while the run lasted. FirstUntruth is the text of the first.
	RefusedUntruly uint64 `json:"refused_untruly"`
	FirstUntruth   string `json:"first_untruth,omitempty"`

	SpansStarted uint64 `json:"spans_started"`
	SpansEnded   uint64 `json:"spans_ended"`
	SpansDropped uint64 `json:"spans_dropped"`

	Guarding Guarding `json:"guarding"`
	// Findings are by kind; Details holds the first of them.
	Findings map[string]uint64 `json:"findings"`
	Details  []Detail          `json:"details"`
	// Incidents are the files in which findings were written.
	Incidents []string `json:"incidents"`
	Leaked    uint64   `json:"leaked_blocks"`
	// DriftBytes is what the books of the runtime and of the pool
	// differ by when all is given back.
	DriftBytes int64 `json:"drift_bytes"`
	// Planted is the bug that was planted on request.
	Planted *Planted `json:"planted,omitempty"`
	// Errors are those that ended the run or spoilt its end.
	Errors []string `json:"errors"`
}

// Bytes is device memory.
type Bytes struct {
	// PeakRequested is the most that callers held at once, Peak the same
	// with what the guard adds; End is what was held at the end.
	PeakRequested uint64 `json:"peak_requested"`
	Peak          uint64 `json:"peak"`
	PeakReserved  uint64 `json:"peak_reserved"`
	End           uint64 `json:"end"`
	Budget        uint64 `json:"budget"`
}

// Detail is one finding.
type Detail struct {
	Kind       string `json:"kind"`
	Source     string `json:"source"`
	Tag        string `json:"tag"`
	Generation uint64 `json:"generation"`
	Text       string `json:"text"`
	// Full is the finding with stacks and launches, on several lines.
	Full string `json:"full"`
}

// Guarding is what the debug guard did. Sizes are bytes.
type Guarding struct {
	// Mode is the guard's at the end of the run.
	Mode string `json:"mode"`
	// Guarded counts blocks between red zones, Unguarded those that had to do
	// without for want of memory. Verified counts comparisons of a block that
	// the device did, Unchecked those left out.
	Guarded   uint64 `json:"guarded"`
	Unguarded uint64 `json:"unguarded"`
	Verified  uint64 `json:"verified"`
	Unchecked uint64 `json:"unchecked"`
	// QuarantinePeak is the most that quarantine was seen to hold, which was
	// looked at a few dozen times a second; Evicted counts the blocks that it
	// let go.
	QuarantinePeak uint64 `json:"quarantine_peak_bytes"`
	Evicted        uint64 `json:"evicted"`
	// Relieved counts refusals that giving up quarantine cured.
	Relieved uint64 `json:"relieved"`
	// Findings counts what the guard itself found.
	Findings uint64 `json:"findings"`
}

// Clean reports whether nothing was wrong, leaked or found, and the work was
// what it should be.
func (r *Report) Clean() bool { return len(r.Faults()) == 0 }

// Faults says why the report is not clean; nothing if it is.
func (r *Report) Faults() []string {
	var faults []string
	for _, f := range []struct {
		is  bool
		why string
	}{
		{len(r.Findings) > 0, "something was found"},
		{r.Wrong > 0, "results are wrong"},
		{r.Leaked > 0, "blocks leaked"},
		{r.DriftBytes != 0, "books and pool differ"},
		{len(r.Errors) > 0, "there were errors"},
		{r.Refused > 0, "requests were refused"},
		{r.RefusedUntruly > 0, "refusals contradict themselves"},
		{r.SpansDropped > 0, "spans were dropped"},
		{r.Results == 0, "it ended before a result was compared"},
		{2*r.CrossStreamLaunches < r.Launches, "fewer than half of its launches use a block of another stream"},
	} {
		if f.is {
			faults = append(faults, f.why)
		}
	}
	return faults
}

// Finish builds the report from the run's end: what Close left over and what
// went wrong. The runtime must be closed and the spans flushed.
func (d *Demo) Finish(left core.Leftover, spans metrics.SpanCounts, runErr, closeErr error) *Report {
	result, stats, ops := d.workload.Result(), d.rt.Stats(), d.rt.Operations()
	r := &Report{
		Device: d.deviceName, Stack: d.rt.String(), Guard: d.rt.Guard().Mode().String(), Seconds: time.Since(d.started).Seconds(),
		Operations: map[string]uint64{}, Failures: map[string]uint64{}, Findings: map[string]uint64{}, Details: []Detail{}, Incidents: []string{}, Errors: []string{},
		Bytes:       Bytes{PeakRequested: stats.PeakRequested, Peak: stats.PeakBytes, PeakReserved: d.peakReserved, End: stats.Outstanding().Bytes, Budget: stats.Limit},
		WaitsQueued: stats.WaitsQueued, WaitsElided: stats.WaitsElided,
		Launches: result.Launches, CrossStreamLaunches: result.CrossStream, Results: result.Checked, Wrong: result.Wrong,
		TracesReplayed: d.replays.Load(), Refused: result.Refused + d.replayRefusals.Load(),
		SpansStarted: spans.Started, SpansEnded: spans.Ended, SpansDropped: spans.Dropped + spans.Failed,
		Leaked: uint64(len(left.Leaks)), DriftBytes: d.drift,
	}
	r.RefusedUntruly, r.FirstUntruth = d.audit.Wrong()
	g := d.rt.Guard().GuardStats()
	r.Guarding = Guarding{Mode: g.Mode.String(), Guarded: g.Guarded, Unguarded: g.Unguarded, Verified: g.Verified, Unchecked: g.Unchecked,
		QuarantinePeak: d.quarantine, Evicted: g.Evicted, Relieved: g.Relieved, Findings: g.Findings}
	for op := oplog.OpAllocate; op <= oplog.OpDrain; op++ {
		r.Operations[op.String()] = ops.Succeeded(op)
		for _, reason := range metrics.Reasons() {
			if n := ops.Failed(op, reason); n > 0 {
				r.Failures[op.String()+"/"+reason.String()] = n
			}
		}
	}
	for kind, n := range d.rt.Findings().Counts() {
		r.Findings[string(kind)] = n
	}
	for _, f := range d.rt.Findings().Recent() {
		r.Details = append(r.Details, Detail{Kind: string(f.Kind), Source: f.Source, Tag: string(f.Victim.Tag),
			Generation: uint64(f.Victim.ID.Generation), Text: f.Text, Full: f.String()})
	}
	if w := d.rt.Incidents(); w != nil {
		r.Incidents = append(r.Incidents, w.Files()...)
	}
	r.Errors = append(append(r.Errors, lines(runErr)...), lines(closeErr)...)
	if d.plant != nil {
		r.Planted = d.plant.Judge()
	}
	return r
}

// lines are the distinct messages of an error, which may be several joined.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	all := strings.Split(err.Error(), "\n")
	slices.Sort(all)
	return slices.Compact(all)
}
