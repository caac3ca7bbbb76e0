package stackconformance_test

import (
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
)

// variants are stacks that differ in who serves what quickly, the first is as it comes.
func variants(seed uint64) map[string]map[int]core.Layer {
	return map[string]map[int]core.Layer{
		"nothing is served at once":  {0: pathtest.PutStranger(nil)},
		"all declined at the end":    {0: pathtest.Put(nil, seed, 1)},
		"a third declined":           {0: pathtest.Put(nil, seed, 3)},
		"some declined everywhere":   {0: pathtest.Put(nil, seed, 9), 1: pathtest.Put(nil, seed+1, 9), 2: pathtest.Put(nil, seed+2, 9), 3: pathtest.Put(nil, seed+3, 9)},
		"the path ends in the stack": {2: pathtest.PutStranger(nil)},
	}
}

// The same random program over a stack as it comes, and over others where less or nothing goes by
// the quick path: all answers, errors, states, books, counters and records are the same, and all
// addresses where the device keeps up. Where it lags, pages come from where the host has seen it.
func TestTheQuickPathChangesNothing(t *testing.T) {
	seed, programs, steps := pathtest.Seed(t), uint64(12), 600
	if testing.Short() {
		programs, steps = 3, 300
	}
	quickly, ordinary, done := uint64(0), uint64(0), map[string]int{}
	n := uint64(0)
	for ; n < programs || ordinary < programs*5 && n < 8*programs; n++ { // more if the draws have few
		how := setup{schedule: sim.Seeded(seed + n), fills: true, guard: debugguard.Config{Mode: debugguard.Mode(n % 2), SampleBytes: 1, QuarantineAge: -1, QuarantineBytes: 4 << 20, Advanced: debugguard.Advanced{UpkeepInterval: -1, Patience: -1}}} // how long a wait takes is the host's
		play := func(t *testing.T, between map[int]core.Layer) (p *player) {
			how.between = between
			return play(t, openWhole(t, how), seed+n, steps, n%4 >= 2)
		}
		t.Run(fmt.Sprint("program ", n), func(t *testing.T) {
			var gate *pathtest.Gate
			want := play(t, map[int]core.Layer{0: pathtest.Put(&gate, 0, 0)})
			quickly += gate.AtOnce.Allocations.Load()
			ordinary += gate.Ordinary.Allocations.Load()
			for name, times := range want.steps {
				done[name] += times
			}
			for name, between := range variants(seed + n) {
				differ(t, name, want.notes, play(t, between).notes)
			}
		})
	}
	if quickly < n*50 || ordinary < programs*5 {
		t.Errorf("%d allocations of %d programs were served at once, %d were ordinary", quickly, n, ordinary)
	}
	t.Logf("%d allocations at once, %d ordinary; %v", quickly, ordinary, done)
}

// differ shows the first note that is not the same, and what led to it.
func differ(t *testing.T, name string, want, got []string) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Errorf("%s: note %d\n%v\nas it comes: %s\nhere:        %s", name, i, want[max(0, i-6):i], want[i], got[i])
			return
		}
	}
	if len(want) != len(got) {
		t.Errorf("%s: %d notes, as it comes %d", name, len(got), len(want))
	}
}
