package stackconformance_test

import (
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
)

func churn(t *testing.T, rt *core.Runtime, stream core.StreamID, n int) {
	t.Helper()
	for i := range n {
		b, err := rt.Allocate(t.Context(), core.Request{Bytes: uint64(256 << (i % 2)), Stream: stream, Tag: "churn"})
		if err == nil {
			_, err = rt.Deallocate(t.Context(), b.ID)
		}
		must.Do(t, err)
	}
}

// In the steady state at most 2 in 1000 are not served at once: blocks that keep their stacks, of which
// there are fewer than half as many at these sizes, whatever the time is. A gate
// just above the backend sees both ways.
func TestPairsInTheSteadyStateGoTheQuickWay(t *testing.T) {
	pairs := 50_000
	if testing.Short() {
		pairs = 20_000
	}
	for mode, guard := range map[string]debugguard.Config{"off": {Mode: debugguard.Off}, "ledger": {Mode: debugguard.Ledger}} {
		t.Run(mode, func(t *testing.T) {
			var gate *pathtest.Gate
			s := openWhole(t, setup{guard: guard, between: map[int]core.Layer{0: pathtest.Put(&gate, 0, 0)}})
			for name, stream := range map[string]core.StreamID{"leased": s.Lease(t, "churn").ID(), "default": core.DefaultStream} {
				churn(t, s.Runtime, stream, 1000)
				before := [2]uint64{gate.Prepared.Allocations.Load(), gate.Prepared.Frees.Load()}
				quickly := gate.AtOnce.Allocations.Load()
				ordinary := gate.Ordinary.Allocations.Load()
				churn(t, s.Runtime, stream, pairs)
				ordinary = gate.Ordinary.Allocations.Load() - ordinary
				allocations, frees := gate.Prepared.Allocations.Load()-before[0], gate.Prepared.Frees.Load()-before[1]
				if most := uint64(pairs * 2 / 1000); allocations > most || frees > most {
					t.Errorf("%s stream: of %d pairs, %d allocations and %d frees were prepared, at most %d may", name, pairs, allocations, frees, most)
				}
				if least := uint64(pairs * 9 / 10); ordinary < least {
					t.Errorf("%s stream: of %d pairs, %d allocations were ordinary, at least %d should be",
						name, pairs, ordinary, least)
				}
				if got := gate.AtOnce.Allocations.Load() - quickly + allocations; got != uint64(pairs) {
					t.Errorf("%s stream: %d allocations reached the backend, %d were made", name, got, pairs)
				}
			}
		})
	}
}

// A decorator that knows nothing of the path sees each call from above it, whatever lies
// above and beneath; beneath it the path begins again, and every layer counts everything.
func TestAStrangerSeesEveryCall(t *testing.T) {
	const n = 500
	for place := range 5 {
		t.Run(fmt.Sprintf("%d layers beneath", place), func(t *testing.T) {
			var stranger *pathtest.Stranger
			s := openWhole(t, setup{guard: debugguard.Config{Mode: debugguard.Ledger}, schedule: sim.Seeded(3), between: map[int]core.Layer{place: pathtest.PutStranger(&stranger)}})
			stream := s.Lease(t, "churn").ID()
			churn(t, s.Runtime, stream, n)
			if a, f := stranger.Calls.Allocations.Load(), stranger.Calls.Frees.Load(); a != n || f != n {
				t.Errorf("it saw %d allocations and %d frees of %d", a, f, n)
			}
			for i, layer := range []core.Resource{s.log, s.budget, s.guard, s.calls} {
				begins := path.Of(layer)
				for begins.Below != nil {
					begins = begins.Below
				}
				if begins.Calls() != (i >= place) {
					t.Errorf("the path of %v begins with calls: %v", layer, begins.Calls())
				}
			}
			s.counted(t, n)
		})
	}
}

// counted demands that all layers have counted n pairs, and nothing is left.
func (s *whole) counted(t *testing.T, n uint64) {
	t.Helper()
	operations := s.calls.Operations()
	stats := s.Runtime.Stats()
	for what, got := range map[string]uint64{
		"calls of allocations":   operations.Succeeded(oplog.OpAllocate),
		"calls of frees":         operations.Succeeded(oplog.OpDeallocate),
		"allocations":            stats.Allocations,
		"frees":                  stats.Deallocations,
		"half of the log's":      s.ring.Total() / 2,
		"blocks the guard knew":  s.guard.GuardStats().Known + s.guard.GuardStats().Tombstones,
		"releases of the memory": stats.FreeToReusable.Count(),
	} {
		if got != n {
			t.Errorf("%s: %d, want %d", what, got, n)
		}
	}
	if held := stats.Outstanding(); held != (core.Amount{}) || stats.Charged != 0 || stats.Underflows != 0 || len(s.budget.Holders()) != 0 {
		t.Errorf("held %+v, charged %d, underflows %d, holders %v", held, stats.Charged, stats.Underflows, s.budget.Holders())
	}
}
