package gputest

import (
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// fenceDelay is longer than a launch takes, and short enough for thousands of
// programs.
const fenceDelay = 60 * time.Microsecond

func (h *hardware) fenceBench(t *testing.T, seed uint64, guard string) *bench {
	t.Helper()
	faults, d, err := h.delayed(seed, fenceDelay)
	must(t, err)
	t.Cleanup(func() { // when the runtime is closed
		must(t, h.Synchronize())
		must(t, h.ModuleUnload(d.module))
		if d.enqueued.Load() == 0 {
			t.Errorf("no work was delayed: the test proves nothing")
		}
	})
	return h.bench(t, fencepost.Config{Driver: faults, Guard: fencepost.GuardMode(guard), Streams: workloadStreams})
}

// Ten thousand programs of the fences' own checker, with kernels that compare
// what they read: every word is the one that the program means. With a fence
// engine that is broken in one place the same run finds wrong words: see
// TestABrokenEngineReadsWrongWords.
func TestFenceProgramsReadWhatTheyMean(t *testing.T) {
	seed := firstSeed(t)
	b := gpu(t).fenceBench(t, seed, "off")
	p := b.openFencePrograms()
	programs := uint64(scaled(10_000, 40))
	for i := range programs {
		if err := p.run(seed + i); err != nil {
			t.Fatalf("seed %d: %v", seed+i, err)
		}
	}
	wrong := p.end()
	s := b.Stats()
	t.Logf("%d programs, %d steps, %d launches, %d aborted, %d waits queued, %d elided: %d words wrong", programs, p.steps, s.Launches, s.Aborts, s.WaitsQueued, s.WaitsElided, wrong)
	if wrong != 0 || s.WaitsQueued == 0 {
		t.Errorf("%d words are wrong", wrong)
	}
}

// A guard that fills and compares has launches of its own before and behind
// those of the program, and holds memory back. The values stay the same.
func TestFenceProgramsReadTheSameUnderEveryGuard(t *testing.T) {
	seed := firstSeed(t)
	for _, guard := range []string{"ledger", "sample:4096", "hunt"} {
		t.Run(guard, func(t *testing.T) {
			b := gpu(t).fenceBench(t, seed, guard)
			// The programs read what no launch has written, without comparing
			// it, and a recorded use waits for the device behind the runtime's back.
			b.meant = []core.FindingKind{names.FindingUninitializedRead, names.FindingMissingFence, names.FindingUseBeforeAlloc}
			p := b.openFencePrograms()
			for i := range uint64(scaled(500, 10)) {
				if err := p.run(seed + i); err != nil {
					t.Fatalf("seed %d: %v", seed+i, err)
				}
			}
			if wrong := p.end(); wrong != 0 {
				t.Errorf("%d words are wrong", wrong)
			}
		})
	}
}
