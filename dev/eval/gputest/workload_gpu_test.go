package gputest

import (
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// workloadStreams is two streams for each of eight goroutines.
const workloadStreams = 16

// regression is the original's multi-threaded sort and hash-join regression.
func regression(seed uint64) workload.Config {
	return workload.Config{Goroutines: scaled(8, 2), Iterations: scaled(128, 2), Rounds: 3, Rows: scaled(1024, 256), Seed: seed}
}

// results is how many results a run has to compare.
func results(c workload.Config) uint64 { return uint64(c.Goroutines * c.Iterations * c.Rounds * 4) }

func TestSortHashJoinAndFilterAreRight(t *testing.T) {
	b := newBench(t, fencepost.Config{Streams: workloadStreams})
	cfg := regression(1)
	r := b.runWorkload(cfg)
	if r.Checked != results(cfg) || r.Wrong != 0 || r.Refused != 0 {
		t.Errorf("%+v; want %d results, all right", r, results(cfg))
	}
	if 2*r.CrossStream < r.Launches {
		t.Errorf("only %d of %d launches used a block that another stream wrote last", r.CrossStream, r.Launches)
	}
	if s := b.Stats(); s.Launches < r.Launches || s.OpenIntents != 0 {
		t.Errorf("the runtime counted %d launches, %d still open; the workload %d", s.Launches, s.OpenIntents, r.Launches)
	}
}

func TestTenRunsOfTheRegressionAreRight(t *testing.T) {
	gpu(t)
	runs := scaled(10, 1)
	var all workload.Result
	want := uint64(0)
	for run := range runs {
		t.Run("run", func(t *testing.T) {
			b := newBench(t, fencepost.Config{Guard: "off", Streams: workloadStreams})
			cfg := regression(uint64(run))
			r := b.runWorkload(cfg)
			all.Launches, all.Checked, all.Wrong = all.Launches+r.Launches, all.Checked+r.Checked, all.Wrong+r.Wrong
			want += results(cfg)
		})
	}
	t.Logf("%d runs: %d launches and copies, %d results, %d wrong", runs, all.Launches, all.Checked, all.Wrong)
	if all.Checked != want || all.Wrong != 0 {
		t.Errorf("%d of %d results were compared, %d are wrong", all.Checked, want, all.Wrong)
	}
}

// Sizes at which a slice, a tile or a warp is not full, one at which every
// slice is, and more rows than there are threads.
func TestTheWorkloadIsRightForRowsOfAnyNumber(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	rows := []int{2, 31, 33, 255, 257, 2048, 2049, 5000, 64*2048 + 7, 1 << 20}
	for _, n := range rows[:scaled(len(rows), 7)] {
		if r := b.runWorkload(workload.Config{Goroutines: 1, Iterations: 1, Rounds: 1, Rows: n, Seed: uint64(n)}); r.Checked != 4 || r.Wrong != 0 {
			t.Errorf("%d rows: %+v", n, r)
		}
	}
}
