package runtimes_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
	"github.com/fencepost-gpu/fencepost/traces"
)

// What the traces' own rows add up to, in requested bytes; see
// traces/README.md.
var recorded = map[string]struct{ peak, end, left uint64 }{
	"gpt2":    {3667184360, 0, 0},
	"resnet":  {3163500608, 68157440, 3},
	"serving": {803116144, 138412032, 8},
	"tables":  {304748987, 0, 0},
}

func recordedTrace(t *testing.T, name string) *alloctrace.Trace {
	t.Helper()
	f := must.Get(traces.Open(name))(t)
	trace := must.Get(alloctrace.Read(name, f))(t)
	must.Do(t, f.Close())
	return trace
}

// The main claim about bytes: whatever the guard adds, what callers asked for
// is counted exactly, and the books agree with the device's. With -short each mode
// and each trace has a turn, but not each pair.
func TestTheRealTracesAreAccountedForToTheByte(t *testing.T) {
	for i, guard := range []string{"off", "ledger", "sample", "sample:1048576"} {
		for j, name := range traces.Names() {
			if testing.Short() && (i+j)%4 != 0 {
				continue
			}
			t.Run(guard+"/"+name, func(t *testing.T) {
				rt := e2e.Open(t, fencepost.Config{Guard: fencepost.GuardMode(guard), Streams: 64})
				report := must.Get(replay.Play(t.Context(), recordedTrace(t, name), replay.Config{Runtime: rt.Core(), Streams: rt.Streams(), Pool: rt}))(t)
				want := recorded[name]
				if report.PeakLive != want.peak || report.EndLive != want.end || report.LeftLiveBlocks != want.left {
					t.Errorf("peak %d, end %d in %d blocks; want %d, %d in %d",
						report.PeakLive, report.EndLive, report.LeftLiveBlocks, want.peak, want.end, want.left)
				}
				if report.Drift != 0 || report.Refusals != 0 || report.UnknownFrees != 0 {
					t.Errorf("drift %d, %d refusals, %d unknown frees", report.Drift, report.Refusals, report.UnknownFrees)
				}
				if sum := report.Allocations + report.Frees + report.RecordedFailures + report.Empty; sum != report.Events {
					t.Errorf("%d events, %d accounted for", report.Events, sum)
				}
				if st := rt.Stats(); st.Outstanding().Blocks != 0 || st.Charged != 0 || st.Underflows != 0 || st.Allocations != report.Allocations || st.Deallocations != report.Allocations {
					t.Errorf("the end: %+v", st)
				}
				if guarded := rt.Guard().GuardStats().Guarded; (guarded > 0) != (guard == "sample" || guard == "sample:1048576") {
					t.Errorf("%d blocks were guarded in mode %s", guarded, guard)
				}
			})
		}
	}
}
