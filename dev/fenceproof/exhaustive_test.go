package fenceproof

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// everyKind is all that a caller does; the reaper's looks and the driver's
// failures are for withReaps.
var everyKind = []program.Kind{program.Launch, program.Free, program.Sync, program.Abort, program.Record}

func bound(ops, goroutines int) proof.Bound {
	return proof.Bound{Bounds: program.Bounds{Streams: 3, Blocks: 3, Ops: ops, Kinds: everyKind}, From: 1, Goroutines: goroutines}
}

// withReaps has the reaper look at the streams between the operations, and
// launches whose event the driver refuses to record.
func withReaps(ops, goroutines int) proof.Bound {
	b := bound(ops, goroutines)
	b.Kinds = []program.Kind{program.Launch, program.Free, program.Reap, program.Faulty, program.FaultyRecord}
	return b
}

// withoutAborts leaves out launches that are aborted: each launch that may be is
// another program, which makes seven times as many of 6 operations.
func withoutAborts(ops, goroutines int) proof.Bound {
	b := bound(ops, goroutines)
	b.Kinds = []program.Kind{program.Launch, program.Free, program.Sync, program.Record}
	b.From = ops // the shorter are among those of bound
	return b
}

// bounds are what is run: some seconds by default, less under the race
// detector. On two busy cores FENCEPOST_FENCES=full takes some twenty minutes, and
// FENCEPOST_FENCES=everything an hour.
func bounds() []proof.Bound {
	switch {
	case os.Getenv("FENCEPOST_FENCES") == "everything":
		return []proof.Bound{bound(6, 2), bound(5, 3), withReaps(5, 2)}
	case os.Getenv("FENCEPOST_FENCES") == "full":
		return []proof.Bound{withoutAborts(6, 2), bound(5, 2), bound(5, 3), withReaps(5, 2)}
	case testing.Short():
		return []proof.Bound{bound(3, 2), bound(3, 3), withReaps(3, 2)}
	case raceDetector:
		return []proof.Bound{bound(4, 2), withReaps(3, 2)}
	default:
		return []proof.Bound{bound(5, 2), bound(4, 3), withReaps(4, 2)}
	}
}

// TestFencesExhaustive runs all programs up to a bound under all schedules of
// their host goroutines, and judges in each case all orders of execution that
// the queued waits leave.
func TestFencesExhaustive(t *testing.T) {
	var total proof.Total
	var texts []string
	for _, b := range bounds() {
		total.Add(exhaust(t, b, proof.Config{}, floorOf(t, b)))
		texts = append(texts, b.String())
	}
	if total.Waits == 0 || total.Missed+total.Redundant+total.Extra > 0 {
		t.Fatalf("%v, %d waits", total, total.Waits)
	}
	fmt.Printf("fences: %v bound=%s complete=%v\n", total, strings.Join(texts, "+"), !t.Failed())
}

// exhaust runs every program of a bound under every schedule, and demands so many of both.
func exhaust(t *testing.T, b proof.Bound, cfg proof.Config, floor amount) proof.Total {
	t.Helper()
	start := time.Now()
	cfg.Streams = b.Streams
	total, err := proof.Exhaust(b, runtime.GOMAXPROCS(0), func() (proof.Checker, error) { return proof.NewRunner(cfg) })
	if err != nil {
		t.Fatalf("bound %v, %v:\n%v", b, cfg.Over, err)
	}
	amount{total.Programs, total.Schedules}.require(t, b, floor)
	t.Logf("bound %v, %v: %v, %d waits, %d orders and waits excused, in %v", b, cfg.Over, total, total.Waits, total.Excused, time.Since(start).Round(time.Millisecond))
	return total
}

// exhaustGivenUp runs every program in which a stream is given up, each on a runner of its own.
func exhaustGivenUp(t *testing.T, b program.Bounds, over proof.Memory, floor amount) (moves proof.Moves) {
	t.Helper()
	var got amount
	b.Each(1, func(p program.Program) bool {
		if !p.GivesUp() {
			return true
		}
		got.programs++
		proof.Explorer{Goroutines: 2}.Each(p, func(s proof.Schedule) bool {
			got.schedules++
			of, err := proof.CheckOnce(proof.Config{Streams: b.Streams, Over: over}, p, s)
			if err != nil {
				t.Error(err)
			}
			moves.Add(of)
			return !t.Failed()
		})
		return !t.Failed()
	})
	t.Logf("%d programs under %d schedules: %v", got.programs, got.schedules, moves)
	got.require(t, "given up", floor)
	return moves
}

// TestGivenUpStreamsKeepTheirOrder runs all programs in which an adopted stream
// is given up: what was allocated there is freed elsewhere, behind its end.
func TestGivenUpStreamsKeepTheirOrder(t *testing.T) {
	b := program.Bounds{Streams: 3, Blocks: 2, Ops: 4, Kinds: []program.Kind{program.Launch, program.Free, program.GiveUp, program.Reap}}
	if os.Getenv("FENCEPOST_FENCES") == "full" {
		b.Ops = 5
	}
	exhaustGivenUp(t, b, proof.DriverPool, givenUpFloors[b.Ops])
}

// TestDeviceOrderNeedsNoHost runs programs in which nothing that the host has
// seen done counts for order: not for the runtime, nor for the oracle.
func TestDeviceOrderNeedsNoHost(t *testing.T) {
	b := bound(4, 2)
	b.Kinds = append(slices.Clone(everyKind), program.Reap)
	if raceDetector {
		b.Ops = 3
	}
	exhaust(t, b, proof.Config{DeviceOrder: true}, deviceFloors[b.Ops])
}

// TestIsolatedBlocksAreUnmappedBehindEveryUse runs every small program under
// every schedule with blocks that have mappings of their own: none is unmapped
// before the device has done what uses it, all are in the end, and no block is
// called gone before. An unmap lies on no stream, so the oracle is not asked.
func TestIsolatedBlocksAreUnmappedBehindEveryUse(t *testing.T) {
	b := proof.Bound{Bounds: program.Bounds{Streams: 2, Blocks: 2, Ops: 5, Kinds: []program.Kind{program.Launch, program.Free, program.Reap}}, From: 1, Goroutines: 2}
	if raceDetector || testing.Short() {
		b.Ops = 4
	}
	exhaust(t, b, proof.Config{Over: proof.Isolated}, isolatedFloors[b.Ops])
}
