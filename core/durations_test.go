package core_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestDurationsFallIntoTheirBuckets(t *testing.T) {
	bounds := core.Durations{}.Bounds()
	mustBe(t, "the bounds ascend", slices.IsSorted(bounds), true)
	for i, bound := range bounds {
		var h core.Durations
		h.Note(bound)
		h.Note(bound + 1)
		mustBe(t, "up to and with "+bound.String(), h.Buckets[i], uint64(1))
		mustBe(t, "above "+bound.String(), h.Buckets[i+1], uint64(1))
		mustBe(t, "count", h.Count(), uint64(2))
		mustBe(t, "sum", h.Nanoseconds, float64(2*bound+1))
	}
	var h core.Durations
	h.Note(0)
	h.Note(1 << 62)
	mustBe(t, "the least", h.Buckets[0], uint64(1))
	mustBe(t, "the most", h.Buckets[len(bounds)], uint64(1))
}

func TestDurationsAreMerged(t *testing.T) {
	var a, b, both core.Durations
	for i, d := range append(core.Durations{}.Bounds(), time.Hour) {
		for range i + 1 {
			a.Note(d)
			both.Note(d)
		}
		b.Note(d + time.Microsecond)
		both.Note(d + time.Microsecond)
	}
	before := b
	a.Merge(&b)
	mustBe(t, "merged", a, both)
	mustBe(t, "what was merged", b, before)
}
