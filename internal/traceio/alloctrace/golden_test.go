package alloctrace_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/traces"
)

// golden are figures of the four recordings that were established apart from
// this package, when the traces were made.
var golden = []struct {
	name                        string
	allocations, frees, streams int
	peakLive, endLive           uint64
}{
	{"gpt2", 2688, 2688, 1, 3667184360, 0},
	{"resnet", 3997, 3994, 1, 3163500608, 68157440},
	{"serving", 3584, 3576, 5, 803116144, 138412032},
	{"tables", 954, 954, 3, 304748987, 0},
}

func readEmbedded(t testing.TB, name string) *alloctrace.Trace {
	t.Helper()
	f := must.Get(traces.Open(name))(t)
	defer func() {
		expect.Success(t, f.Close())
	}()
	return must.Get(alloctrace.Read(name, f))(t)
}

func TestRealTracesHaveTheirKnownFigures(t *testing.T) {
	for _, want := range golden {
		t.Run(want.name, func(t *testing.T) {
			trace := readEmbedded(t, want.name)
			if trace.Format != alloctrace.FormatRMM || trace.Name != want.name {
				t.Errorf("read as %v %q", trace.Format, trace.Name)
			}
			got := alloctrace.Summarize(trace)
			if got.Events != want.allocations+want.frees || got.Allocations != want.allocations || got.Frees != want.frees {
				t.Errorf("%d events, %d allocations, %d frees; want %d and %d", got.Events, got.Allocations, got.Frees, want.allocations, want.frees)
			}
			if got.PeakLive != want.peakLive || got.EndLive != want.endLive {
				t.Errorf("peak %d, end %d; want %d, %d", got.PeakLive, got.EndLive, want.peakLive, want.endLive)
			}
			if len(got.LiveRows) != want.allocations-want.frees || len(got.Streams) != want.streams {
				t.Errorf("%d live rows, streams %v; want %d, %d streams", len(got.LiveRows), got.Streams, want.allocations-want.frees, want.streams)
			}
			if got.Failures != 0 || got.UnknownFrees != 0 || got.Repeated != 0 {
				t.Errorf("%d failures, %d unknown frees, %d repeated; want none", got.Failures, got.UnknownFrees, got.Repeated)
			}
		})
	}
}

func BenchmarkReadResnet(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		readEmbedded(b, "resnet")
	}
}
