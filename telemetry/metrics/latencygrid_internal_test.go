package metrics

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestTheGridIsWhatItsConstantsSay(t *testing.T) {
	if len(latencyBounds) != classicBounds {
		t.Errorf("%d classic bounds, the constant says %d", len(latencyBounds), classicBounds)
	}
	if grid.upTo[cells-1] != math.MaxUint64 || grid.classic[cells-1] != classicBounds || grid.native[cells-1] != highestKey {
		t.Errorf("the last cell ends at %d, in buckets %d and %d", grid.upTo[cells-1], grid.classic[cells-1], grid.native[cells-1])
	}
}

// edges are durations at and beside every boundary, and everywhere else.
func edges() (all []time.Duration) {
	for _, bound := range grid.upTo[:cells-1] {
		all = append(all, time.Duration(bound), time.Duration(bound)+1)
		if bound > 0 {
			all = append(all, time.Duration(bound)-1)
		}
	}
	for n := range 64 {
		all = append(all, 1<<n>>1, 1<<n-1)
	}
	return all
}

func TestTheCellOfADurationIsTheFirstThatHoldsIt(t *testing.T) {
	for _, d := range edges() {
		cell := grid.cellOf(uint64(d))
		if uint64(d) > grid.upTo[cell] || cell > 0 && uint64(d) <= grid.upTo[cell-1] {
			t.Errorf("%d ns is put into cell %d", d, cell)
		}
	}
}

// The histograms are those that client_golang makes of the same durations:
// the same buckets, classic and native.
func TestTheHistogramsAreThoseOfTheLibrary(t *testing.T) {
	var bounds []float64
	for _, bound := range latencyBounds {
		bounds = append(bounds, bound.Seconds())
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	longest := time.Duration(1<<10) * time.Second // beyond it ours differs, as is documented
	durations := edges()
	for range 5000 {
		durations = append(durations, time.Duration(math.Exp(random.Float64()*math.Log(float64(longest)))))
	}
	library := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: bounds, NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: zeroThreshold})
	ours := &Calls{}
	for _, d := range durations {
		if d < 0 || d > longest {
			continue
		}
		library.Observe(d.Seconds())
		ours.Note(oplog.OpDrain, 0, d, core.SpanRef{}, nil)
	}
	var want, got dto.Metric
	must.Do(t, library.Write(&want))
	write(t, ours, &got)
	a, b := want.GetHistogram(), got.GetHistogram()
	if math.Abs(a.GetSampleSum()/b.GetSampleSum()-1) > 1e-9 {
		t.Errorf("seed %d: the sums are %v and %v", seed, a.GetSampleSum(), b.GetSampleSum())
	}
	if diff := cmp.Diff(a, b, protocmp.Transform(), protocmp.IgnoreFields(a, "sample_sum", "created_timestamp")); diff != "" {
		t.Errorf("seed %d: the library's (-) and ours (+) differ:\n%s", seed, diff)
	}
}

// write is what a scrape would write of drain's durations.
func write(t *testing.T, c *Calls, out *dto.Metric) {
	t.Helper()
	sent := make(chan prometheus.Metric, 1)
	ops := c.Snapshot(time.Unix(1, 0), 0)
	sender{prometheus.NewDesc("h", "", []string{"op"}, nil), histogramKind, sent,
		look{}}.latency(ops.latencyOf(oplog.OpDrain), ops.since, "drain")
	must.Do(t, (<-sent).Write(out))
}

func TestNoDurationIsLost(t *testing.T) {
	c := &Calls{}
	c.Note(oplog.OpDrain, 0, math.MaxInt64, core.SpanRef{}, nil)
	c.Note(oplog.OpDrain, 0, 0, core.SpanRef{}, nil)
	var m dto.Metric
	write(t, c, &m)
	h := m.GetHistogram()
	if h.GetSampleCount() != 2 || h.GetZeroCount() != 1 || len(h.GetPositiveDelta()) != 1 || h.GetPositiveDelta()[0] != 1 {
		t.Errorf("%v", h)
	}
}
