package workload_test

import (
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

func run(t *testing.T, s *teststack.Stack, cfg workload.Config) workload.Result {
	t.Helper()
	w := must.Get(workload.New(s.Env(), cfg))(t)
	return must.Get(w.Run(t.Context()))(t)
}

// The original's multi-threaded sort and hash-join regression: 8 threads, 128
// iterations, 3 rounds, all results right, and the oracle silent.
func TestSortAndHashJoinIsRightWithEveryFence(t *testing.T) {
	s, iterations := teststack.Open(t, teststack.Config{}), 128
	if testing.Short() {
		iterations = 24
	}
	result := run(t, s, workload.Config{Goroutines: 8, Iterations: iterations, Rounds: 3, Rows: 256, Seed: 1})
	if want := uint64(8 * iterations * 3 * 4); result.Checked != want || result.Wrong != 0 {
		t.Errorf("%d results checked, %d wrong; want %d and 0", result.Checked, result.Wrong, want)
	}
	if 2*result.CrossStream < result.Launches {
		t.Errorf("only %d of %d launches used a block that another stream wrote last", result.CrossStream, result.Launches)
	}
	if stats := s.Runtime.Stats(); stats.Launches != result.Launches || stats.CrossStream != result.CrossStream {
		t.Errorf("the runtime counted %d launches, %d across streams; the workload %d and %d",
			stats.Launches, stats.CrossStream, result.Launches, result.CrossStream)
	}
}

// The same work with no wait reaching the device: the test above is able to
// fail, and the oracle sees what goes wrong.
func TestSortAndHashJoinWithoutWaitsIsCaught(t *testing.T) {
	wrong := uint64(0)
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			s := teststack.Open(t, teststack.Config{Dirty: true, Sim: sim.Config{Schedule: sim.Seeded(seed)}})
			s.Sim.DropWaits(true)
			result := run(t, s, workload.Config{Goroutines: 2, Iterations: 2, Rounds: 1, Rows: 64, Seed: seed})
			if s.Sim.FindingCount() == 0 {
				t.Errorf("the oracle missed it")
			}
			wrong += result.Wrong
		})
	}
	if wrong == 0 {
		t.Errorf("no seed gave a wrong result: the values prove nothing")
	}
}

func TestSortAndHashJoinIsRightUnderSeededSchedules(t *testing.T) {
	for seed := range uint64(12) {
		s := teststack.Open(t, teststack.Config{Sim: sim.Config{Schedule: sim.Seeded(seed)}})
		result := run(t, s, workload.Config{Goroutines: 2, Iterations: 4, Rounds: 2, Rows: 64, Seed: seed})
		if result.Wrong != 0 {
			t.Errorf("seed %d: %d of %d results are wrong", seed, result.Wrong, result.Checked)
		}
	}
}

// Sizes at which a slice, a tile, a warp is not full, or the last slice is
// shorter than the others.
func TestSortAndHashJoinIsRightForRowsOfAnyNumber(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	for _, rows := range []int{2, 31, 33, 255, 257, 2048, 2049, 5000, 64*2048 + 7} {
		if result := run(t, s, workload.Config{Goroutines: 1, Iterations: 1, Rounds: 1, Rows: rows, Seed: uint64(rows)}); result.Wrong != 0 || result.Checked != 4 {
			t.Errorf("%d rows: %d of %d results are wrong", rows, result.Wrong, result.Checked)
		}
	}
}
