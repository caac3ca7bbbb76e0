package fenceproof

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// poolBound has programs about memory: each launch writes one block.
func poolBound(ops, goroutines int) proof.Bound {
	return proof.Bound{Bounds: program.Bounds{Streams: 2, Blocks: 4, Ops: ops, Kinds: []program.Kind{program.Launch, program.Free, program.Reap},
		Sizes: proof.PoolSizes, Single: true}, From: 1, Goroutines: goroutines}
}

// poolEveryKind has a third stream, and all that a caller does with a block.
func poolEveryKind(ops int) proof.Bound {
	b := poolBound(ops, 2)
	b.Streams, b.Kinds = 3, append([]program.Kind{program.Reap}, everyKind...)
	return b
}

// poolRun is a bound that is run over the pool, how much it has, in how many runs
// the pool must do each thing at least, with how many operations must be served quickly, and declined.
type poolRun struct {
	proof.Bound
	amount
	floor proof.Moves
}

func poolRuns() []poolRun {
	small := poolRun{poolBound(4, 2), amount{5268, 13_971}, proof.Moves{Reuses: 400, Splits: 150, Takeovers: 40, Steals: 170, Remaps: 10, Growths: 13_000, Refusals: 4000, QuickAllocations: 900, QuickFrees: 18_000, SlowAllocations: 28_000, SlowFrees: 6500}}
	every := poolRun{poolEveryKind(4), amount{27_906, 65_619}, proof.Moves{Reuses: 700, Splits: 250, Takeovers: 80, Steals: 350, Remaps: 14, Growths: 65_000, Refusals: 15_000, QuickAllocations: 2700, QuickFrees: 70_000, SlowAllocations: 120_000, SlowFrees: 45_000}}
	longer := poolRun{poolBound(5, 2), amount{75_306, 461_931},
		proof.Moves{Reuses: 14_000, Splits: 5000, Merges: 60, Joins: 25, Takeovers: 1000, Steals: 5500, Remaps: 300, Growths: 460_000, Refusals: 200_000, QuickAllocations: 40_000, QuickFrees: 600_000, SlowAllocations: 1_000_000, SlowFrees: 280_000}}
	longest := poolRun{poolBound(6, 1), amount{1_065_105, 1_065_105},
		proof.Moves{Reuses: 120_000, Splits: 45_000, Merges: 2400, Joins: 500, Takeovers: 15_000, Steals: 50_000, Remaps: 4000, Growths: 1_000_000, Refusals: 700_000, QuickAllocations: 100_000, QuickFrees: 1_000_000, SlowAllocations: 1_000_000, SlowFrees: 100_000}}
	switch {
	case os.Getenv("FENCEPOST_FENCES") != "":
		return []poolRun{every, longer, longest}
	case testing.Short() || raceDetector:
		return []poolRun{small}
	default:
		return []poolRun{every, longer}
	}
}

// TestPoolKeepsTheOrder runs all programs up to a bound, under all schedules, over the
// runtime's own pool: blocks of half a page, of one and of two under a limit of three pages. What uses
// memory comes behind all that used it before, no wait can be taken away but those that docs/memory-model.md
// names, no page loses its address under the device's hands, and no allocation is refused while pages lie idle.
// Allocations and frees are served at once in one run, as far as they can be, and prepared in the other.
func TestPoolKeepsTheOrder(t *testing.T) {
	for _, run := range poolRuns() {
		for _, over := range proof.OwnPools {
			total := exhaust(t, run.Bound, proof.Config{Over: over}, run.amount)
			if over == proof.OwnPool {
				run.floor = run.floor.Ordinary()
			}
			requireMoves(t, total.Moves, run.floor)
			fmt.Printf("pool: %v bound=%v %v\n", total, run.Bound, total.Moves)
		}
	}
}

// TestGivenUpStreamsKeepTheirOrderOverThePool runs all programs in which an adopted stream that may
// have memory is given up: its blocks are freed elsewhere then, and others get the memory from there.
func TestGivenUpStreamsKeepTheirOrderOverThePool(t *testing.T) {
	b := program.Bounds{Streams: 2, Blocks: 3, Ops: 5, Kinds: []program.Kind{program.Launch, program.Free, program.GiveUp, program.Reap}, Sizes: proof.PoolSizes[1:], Single: true}
	want, floor := amount{11_926, 39_282}, proof.Moves{Reuses: 480, Splits: 120, Takeovers: 90, Steals: 300, Remaps: 10, Growths: 39_000, Refusals: 6000}
	if testing.Short() || raceDetector {
		b.Ops, want, floor = 4, amount{736, 1222}, proof.Moves{Reuses: 14, Splits: 3, Takeovers: 3, Steals: 9, Growths: 1200, Refusals: 130}
	}
	requireMoves(t, exhaustGivenUp(t, b, proof.OwnPoolQuickly, want), floor) // adopted streams are served nothing at once
}

// requireMoves demands that the programs made the pool do everything often enough.
func requireMoves(t *testing.T, got, floor proof.Moves) {
	t.Helper()
	if !got.Reach(floor) {
		t.Errorf("the pool was made to do %v, which must be at least %v", got, floor)
	}
}

// TestRandomProgramsKeepTheOrderOverThePool runs longer programs, which split, merge and move
// memory again and again.
func TestRandomProgramsKeepTheOrderOverThePool(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	programs := 20_000
	switch {
	case raceDetector:
		programs /= 20
	case testing.Short():
		programs /= 5
	}
	b := program.Bounds{Streams: 3, Blocks: 12, Ops: 20, Kinds: append([]program.Kind{program.Reap}, everyKind...), Sizes: proof.PoolSizes}
	runners := make([]*proof.Runner, len(proof.OwnPools))
	for i, over := range proof.OwnPools {
		var err error
		if runners[i], err = proof.NewRunner(proof.Config{Streams: b.Streams, Over: over}); err != nil {
			t.Fatal(err)
		}
	}
	var total proof.Total
	// kept are programs in which streams keep blocks.
	kept := program.Bounds{Streams: 2, Blocks: 12, Ops: 20, Kinds: everyKind, Sizes: proof.PoolSizes[:1]}
	for i := range programs {
		p := program.Draw([]program.Bounds{b, kept}[i%5/4], rng.IntN)
		s := proof.DrawSchedule(p, 1+rng.IntN(3), rng.IntN)
		r := runners[i%4/3] // in every fourth all is prepared
		v, err := r.Check(p, s)
		if err != nil {
			t.Fatal(err)
		}
		total.Programs++
		total.Count(v)
	}
	var moves proof.Moves
	for _, r := range runners {
		moves.Add(r.Moves())
		expect.Success(t, r.Close())
	}
	each := uint64(programs) / 100
	requireMoves(t, moves, proof.Moves{Reuses: 20 * each, Splits: 10 * each, Merges: 3 * each, Joins: 2 * each, Takeovers: 7 * each, Steals: 8 * each, Remaps: each / 4, Growths: 90 * each, Refusals: 20 * each,
		QuickAllocations: 10 * each, QuickFrees: 50 * each, SlowAllocations: 100 * each, SlowFrees: 70 * each, Again: each})
	t.Logf("%v, %d waits, %d orders and waits excused, %v", total, total.Waits, total.Excused, moves)
}
