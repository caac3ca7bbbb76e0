package gputest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
	"github.com/fencepost-gpu/fencepost/traces"
)

// recorded are what a trace's rows add up to, in requested bytes, and what
// PyTorch's own allocator said of the same program; see the README of traces.
var recorded = map[string]struct {
	peak, end, left uint64
	// liveMiB and reservedMiB are PyTorch's peaks, expandable what it reserved
	// for each live byte with expandable segments.
	liveMiB, reservedMiB, expandable float64
}{
	"gpt2":    {3667184360, 0, 0, 3506, 3890, 1.01},
	"resnet":  {3163500608, 68157440, 3, 3035, 3548, 1.03},
	"serving": {803116144, 138412032, 8, 767, 1608, 1.54},
	"tables":  {304748987, 0, 0, 292, 902, 2.17},
}

func loadTrace(t *testing.T, name string) *alloctrace.Trace {
	t.Helper()
	f, err := traces.Open(name)
	must(t, err)
	trace, err := alloctrace.Read(name, f)
	must(t, err)
	must(t, f.Close())
	return trace
}

// The books are exact to the byte whatever the guard adds. What the driver's
// pool reserves for them is printed beside PyTorch's figures.
func TestTheRealTracesOnTheGPU(t *testing.T) {
	gpu(t)
	table := []string{fmt.Sprintf("%-8s %-7s %9s %9s %9s %6s | %9s %9s %6s %10s", "trace", "guard", "live MiB", "used", "reserved", "ratio",
		"PyTorch", "reserved", "ratio", "expandable")}
	names := traces.Names()
	if sanitized {
		names = names[len(names)-1:] // the shortest
	}
	for _, guard := range []string{"off", "sample"} {
		for _, name := range names {
			t.Run(guard+"/"+name, func(t *testing.T) { table = append(table, replayed(t, guard, name)) })
		}
	}
	t.Logf("the driver's pool beside PyTorch's caching allocator, each program's peaks in MiB:\n%s", strings.Join(table, "\n"))
}

func replayed(t *testing.T, guard, name string) string {
	t.Helper()
	b := newBench(t, fencepost.Config{Guard: fencepost.GuardMode(guard), Streams: 64})
	r, err := replay.Play(ctx, loadTrace(t, name), replay.Config{Runtime: b.Core(), Streams: b.Streams(), Pool: b})
	must(t, err)
	want := recorded[name]
	if r.PeakLive != want.peak || r.EndLive != want.end || r.LeftLiveBlocks != want.left {
		t.Errorf("peak %d, end %d in %d blocks; want %d, %d in %d", r.PeakLive, r.EndLive, r.LeftLiveBlocks, want.peak, want.end, want.left)
	}
	if r.Drift != 0 || r.Refusals != 0 || r.UnknownFrees != 0 || r.Repeated != 0 {
		t.Errorf("drift %d, %d refusals (%s), %d unknown frees, %d repeated", r.Drift, r.Refusals, r.FirstRefusal, r.UnknownFrees, r.Repeated)
	}
	if s := b.Stats(); s.Allocations != r.Allocations || s.Deallocations != r.Allocations {
		t.Errorf("%d allocations and %d frees of %d", s.Allocations, s.Deallocations, r.Allocations)
	}
	pool, err := b.PoolStats()
	must(t, err)
	const mib = 1 << 20
	live := float64(r.PeakLive) / mib
	return fmt.Sprintf("%-8s %-7s %9.0f %9.0f %9.0f %6.2f | %9.0f %9.0f %6.2f %10.2f", name, guard, live, float64(pool.UsedHigh)/mib, float64(pool.ReservedHigh)/mib,
		float64(pool.ReservedHigh)/mib/live, want.liveMiB, want.reservedMiB, want.reservedMiB/want.liveMiB, want.expandable)
}
