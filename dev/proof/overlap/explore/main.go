// Explore checks the fences of the instrumented packages where calls overlap, and prints
// what came out as one line of JSON. It must be built with an overlay: the test
// TestFencesInterleavedInsideCalls in dev/fenceproof does that, runs one for each
// processor, and says more.
//
//	-own 0 -of 2   the first half of the programs
//	-all           the larger bounds
//	-family pairs  one family of programs
//	-plant 3       with fault 3 of those that were built in
//	-compare 100   one in so many programs with the reduction and without it
//	-sequential    one call at a time instead, to see what that finds
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
	"github.com/fencepost-gpu/fencepost/dev/proof/overlap"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

func main() {
	own, of := flag.Int("own", 0, "`number` of the part to run"), flag.Int("of", 1, "`number` of parts")
	all, plant := flag.Bool("all", false, "run the larger bounds"), flag.Int("plant", 0, "`number` of the fault to show")
	family := flag.String("family", "", "`name` of the only family to run")
	compare, sequential := flag.Int("compare", 0, "compare one in so `many` programs with what comes without the reduction"), flag.Bool("sequential", false, "check one call at a time")
	flag.Parse()
	interleave.Plant(*plant)
	var total *overlap.Total
	switch {
	case *sequential:
		total = oneAtATime()
	case *compare > 0:
		total = overlap.CompareReduction(overlap.Families(*all), *compare)
	default:
		debug.SetGCPercent(800) // every execution makes its own runtime
		families := overlap.Families(*all)
		if *family != "" {
			families = slices.DeleteFunc(families, func(f *overlap.Family) bool { return f.Name != *family })
		}
		total = overlap.Explore(families, *own, *of)
	}
	if err := json.NewEncoder(os.Stdout).Encode(total); err != nil {
		fmt.Fprintln(os.Stderr, "explore:", err)
		os.Exit(1)
	}
}

// oneAtATime is the exhaustive check of package proof, over the driver's pool and the runtime's own.
func oneAtATime() *overlap.Total {
	kinds := []program.Kind{program.Launch, program.Free, program.Sync, program.Abort, program.Record}
	b := proof.Bound{Bounds: program.Bounds{Streams: 3, Blocks: 3, Ops: 4, Kinds: kinds}, From: 1, Goroutines: 3}
	pool := proof.Bound{Bounds: program.Bounds{Streams: 2, Blocks: 4, Ops: 4, Kinds: []program.Kind{program.Launch, program.Free, program.Reap},
		Sizes: proof.PoolSizes, Single: true}, From: 1, Goroutines: 2}
	total := &overlap.Total{Bounds: []string{b.String(), pool.String()}}
	for over, bound := range map[proof.Memory]proof.Bound{proof.DriverPool: b, proof.OwnPool: pool, proof.OwnPoolQuickly: pool} {
		got, err := proof.Exhaust(bound, runtime.GOMAXPROCS(0), func() (proof.Checker, error) {
			return proof.NewRunner(proof.Config{Streams: bound.Streams, Over: over})
		})
		if total.Programs += got.Programs; err != nil {
			total.Failure += err.Error()
		}
	}
	return total
}
