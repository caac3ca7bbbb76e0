package gputest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// longestDelay is far longer than any launch takes to be enqueued.
const longestDelay = 400 * time.Microsecond

// delayedBench is a runtime on a GPU whose streams run far apart.
func delayedBench(t *testing.T, seed uint64) (*bench, *drivertest.Faults) {
	t.Helper()
	return gpu(t).delayedBench(t, seed)
}

func (h *hardware) delayedBench(t *testing.T, seed uint64) (*bench, *drivertest.Faults) {
	t.Helper()
	faults, d, err := h.delayed(seed, longestDelay)
	must(t, err)
	t.Cleanup(func() { // when the runtime is closed
		must(t, h.Synchronize())
		must(t, h.ModuleUnload(d.module))
		if d.enqueued.Load() == 0 {
			t.Errorf("no work was delayed: the test proves nothing")
		}
	})
	return h.bench(t, fencepost.Config{Driver: faults, Guard: "off", Streams: workloadStreams}), faults
}

// withoutFences runs work while no wait reaches the driver. Its end waits for
// the whole device: what the frees did not wait for may still be running, and
// must not outlive the memory.
func (b *bench) withoutFences(faults *drivertest.Faults, work func()) {
	b.Helper()
	b.dirty = true
	faults.DropWaits(true)
	work()
	faults.DropWaits(false)
	must(b, b.hw.Synchronize())
}

func delayedWorkload(seed uint64) workload.Config {
	return workload.Config{Goroutines: scaled(8, 4), Iterations: scaled(32, 2), Rounds: 1, Rows: scaled(1024, 256), Seed: seed}
}

func TestResultsAreRightOverDelays(t *testing.T) {
	gpu(t)
	for seed := range uint64(scaled(4, 1)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			b, _ := delayedBench(t, seed)
			cfg := delayedWorkload(seed)
			if r := b.runWorkload(cfg); r.Wrong != 0 || r.Checked != results(cfg) {
				t.Errorf("%+v; want %d results, all right", r, results(cfg))
			}
		})
	}
}

// The same work over the same delays with every fence removed: the test above
// can fail.
func TestResultsAreWrongWithoutFences(t *testing.T) {
	provokes(t, "races, by dropping every wait")
	if !alone(t) {
		return
	}
	b, faults := delayedBench(t, 0)
	b.withoutFences(faults, func() {
		if r := b.runWorkload(delayedWorkload(0)); r.Wrong == 0 {
			t.Errorf("%+v; no result is wrong although no stream waited", r)
		}
	})
}
