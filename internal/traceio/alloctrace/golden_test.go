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
			allocations, peak, live, streams := 0, uint64(0), uint64(0), map[uint64]bool{}
			blocks := map[alloctrace.Key]uint64{}
			for _, row := range trace.Rows {
				streams[row.Stream] = true
				bytes, known := blocks[row.Key()]
				switch row.Action {
				case alloctrace.Allocate:
					allocations++
					blocks[row.Key()] = row.Bytes
					live += row.Bytes
				case alloctrace.Free:
					delete(blocks, row.Key())
					live -= bytes
				}
				if known != (row.Action == alloctrace.Free) {
					t.Errorf("line %d: %v of a block that is live: %v", row.Line, row.Action, known)
				}
				peak = max(peak, live)
			}
			if frees := len(trace.Rows) - allocations; allocations != want.allocations || frees != want.frees {
				t.Errorf("%d allocations, %d frees; want %d and %d", allocations, frees, want.allocations, want.frees)
			}
			if peak != want.peakLive || live != want.endLive {
				t.Errorf("peak %d, end %d; want %d, %d", peak, live, want.peakLive, want.endLive)
			}
			if len(blocks) != want.allocations-want.frees || len(streams) != want.streams {
				t.Errorf("%d live blocks, streams %v; want %d, %d streams", len(blocks), streams, want.allocations-want.frees, want.streams)
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
