package replay

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/size"
)

// Report is what one replay saw. All sizes are bytes as the recorded program
// asked for them, unless said otherwise.
type Report struct {
	File   string `json:"file"`
	Format string `json:"format"`
	// Events counts the rows; the next four add up to it.
	Events      uint64 `json:"events"`
	Allocations uint64 `json:"allocations"`
	Frees       uint64 `json:"frees"`
	// RecordedFailures are rows of allocations that had failed when they
	// were recorded; they are not played. Failures are the first maxListed.
	RecordedFailures uint64    `json:"recorded_failures"`
	Failures         []Failure `json:"failures"`
	// Empty are rows that concern no memory: allocations and frees of no bytes.
	Empty uint64 `json:"empty"`
	// TooLong are rows that were skipped because of their length, the first of
	// them in the line FirstTooLong. They are not among Events.
	TooLong      uint64 `json:"too_long"`
	FirstTooLong int    `json:"first_too_long_line,omitempty"`
	// Cut is the line in which the file ends in the middle of a row, which is
	// not played; zero if it ends where a row does.
	Cut int `json:"cut_line,omitempty"`
	// UnknownFrees are frees of a block that was not live. Among Frees.
	UnknownFrees uint64 `json:"unknown_frees"`
	// EarlierBlocks and EarlierBytes are unknown frees of what no row before
	// them named: blocks that were live when the recording began.
	EarlierBlocks uint64 `json:"earlier_blocks"`
	EarlierBytes  uint64 `json:"earlier_bytes"`
	// Missing are records of the log's process that are not in the file, by
	// their numbers.
	Missing uint64 `json:"missing_records"`
	// LowerBounds says that the file lacks some of its program, mostly the
	// beginning, by such frees or such numbers: live and reserved bytes may have
	// been more than the report has.
	LowerBounds bool `json:"lower_bounds"`
	// Repeated are allocations at a pointer that was live: the row of its
	// free is missing, and the earlier block stays live to the end.
	Repeated uint64 `json:"repeated"`
	// Refusals are allocations that the budget or the device refused, and
	// RefusedFrees the frees of those blocks, which are not played.
	Refusals     uint64 `json:"refusals"`
	RefusedFrees uint64 `json:"refused_frees"`
	// FirstRefusal explains the first refusal.
	FirstRefusal string `json:"first_refusal,omitempty"`
	// RefusedUntruly counts refusals whose figures leave room for the request, and FirstUntruth
	// is the text of the first. Filled in by the caller.
	RefusedUntruly uint64 `json:"refused_untruly"`
	FirstUntruth   string `json:"first_untruth,omitempty"`
	// PeakLive and EndLive are live bytes, by the runtime's books.
	PeakLive uint64 `json:"peak_live_bytes"`
	EndLive  uint64 `json:"end_live_bytes"`
	// PeakReserved is the most that the pool held of the device.
	PeakReserved uint64 `json:"peak_reserved_bytes"`
	// Drift is the difference between what the runtime's books and the
	// pool say is allocated, taken when nothing was under way, before
	// the blocks left live were freed and after.
	Drift int64 `json:"drift_bytes"`
	// LeftLive are the blocks that the trace did not free, by allocating
	// row, at most maxListed of them; LeftLiveBlocks counts all.
	LeftLive       []Left `json:"left_live"`
	LeftLiveBlocks uint64 `json:"left_live_blocks"`
	// Latency is by operation.
	Latency map[string]Latency `json:"latency"`
	// Findings is by kind. Filled in by the caller.
	Findings map[string]uint64 `json:"findings"`
	// Resource names the stack.
	Resource string `json:"resource"`
	// Seconds is how long the replay took, DrainSeconds how much of that went
	// by behind the last row until the device was done with all frees.
	Seconds      float64 `json:"seconds"`
	DrainSeconds float64 `json:"drain_seconds"`
}

// Failure is an allocation that had failed when it was recorded. Live,
// LiveBlocks and LargestFree are as of then, by the rows: the last is the
// largest range among the addresses of the recording in which nothing was
// live, which of a device's own pool is what it could have given.
type Failure struct {
	Line        int    `json:"line"`
	Bytes       uint64 `json:"bytes"`
	Stream      uint64 `json:"stream"`
	Live        uint64 `json:"live_bytes"`
	LiveBlocks  uint64 `json:"live_blocks"`
	LargestFree uint64 `json:"largest_free_bytes"`
	// Error is what the recorded program was told, where the format has it.
	Error string `json:"error,omitempty"`
	// Text is all of that in a sentence.
	Text string `json:"text"`
}

// explain is the sentence of a failure.
func (f *Failure) explain() string {
	text := fmt.Sprintf("line %d: %d bytes (%s) on stream %d, with %d bytes live in %d blocks; among the recorded addresses the largest free range had %d bytes",
		f.Line, f.Bytes, size.Of(f.Bytes), f.Stream, f.Live, f.LiveBlocks, f.LargestFree)
	if f.Error != "" {
		text += ": " + f.Error
	}
	return text
}

// Left is a block that the trace did not free.
type Left struct {
	Line   int    `json:"line"`
	Bytes  uint64 `json:"bytes"`
	Stream uint64 `json:"stream"`
}

const maxListed = 100

// Latency is the distribution of one operation's duration in nanoseconds.
type Latency struct {
	Count int   `json:"count"`
	P50   int64 `json:"p50_ns"`
	P90   int64 `json:"p90_ns"`
	P99   int64 `json:"p99_ns"`
	Max   int64 `json:"max_ns"`
}

func latency(samples []time.Duration) Latency {
	if len(samples) == 0 {
		return Latency{}
	}
	slices.Sort(samples)
	at := func(q float64) int64 { return int64(samples[int(q*float64(len(samples)-1))]) }
	return Latency{Count: len(samples), P50: at(.5), P90: at(.9), P99: at(.99), Max: at(1)}
}

// Clean reports whether nothing was wrong: no refusal, true or not, no drift and no finding.
func (r *Report) Clean() bool {
	for _, n := range r.Findings {
		if n > 0 {
			return false
		}
	}
	return r.Refusals == 0 && r.RefusedUntruly == 0 && r.Drift == 0
}
