package loadgen

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQuantilesAreRightWithinFivePercent(t *testing.T) {
	var h histogram
	if h.summary() != (Latency{}) {
		t.Errorf("of nothing: %+v", h.summary())
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(float64(time.Millisecond) * rng.ExpFloat64() * 20)
		all = append(all, d)
		h.note(d)
	}
	slices.Sort(all)
	for q, got := range map[float64]time.Duration{.5: h.summary().P50, .9: h.summary().P90, .99: h.summary().P99, 1: h.summary().Max} {
		want := all[int(q*float64(len(all)))-1]
		if got < want || float64(got) > 1.05*float64(want) {
			t.Errorf("quantile %v: %v, exactly %v", q, got, want)
		}
	}
}

func TestEveryDurationHasABucket(t *testing.T) {
	var h histogram
	for _, d := range []time.Duration{-1, 0, 1, time.Microsecond, time.Hour, 1 << 62} {
		h.note(d)
	}
	if h.n != 6 || h.quantile(1) != 1<<62 {
		t.Errorf("%d, %v", h.n, h.quantile(1))
	}
}
