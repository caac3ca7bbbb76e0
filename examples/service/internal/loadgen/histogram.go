package loadgen

import (
	"math"
	"time"
)

// Buckets grow by a twentieth from a microsecond to beyond an hour, so that a
// run of any length takes the same memory.
const (
	growth  = 1.05
	buckets = 460
)

// histogram counts durations. The zero histogram is empty.
type histogram struct {
	counts [buckets]uint64
	n      uint64
	max    time.Duration
}

func (h *histogram) note(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.n++
	h.max = max(h.max, d)
}

func bucketOf(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	i := math.Ceil(math.Log(float64(d)/float64(time.Microsecond)) / math.Log(growth))
	return min(int(i), buckets-1)
}

// quantile is the upper end of the bucket that holds the share q of the
// durations, or the largest duration if that is less.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.n)))
	sum := uint64(0)
	for i, c := range h.counts {
		if sum += c; sum >= rank && c > 0 && i < buckets-1 { // the last has no upper end
			return min(h.max, time.Duration(math.Pow(growth, float64(i))*float64(time.Microsecond)))
		}
	}
	return h.max
}

func (h *histogram) summary() Latency {
	return Latency{P50: h.quantile(.5), P90: h.quantile(.9), P99: h.quantile(.99), Max: h.max}
}
