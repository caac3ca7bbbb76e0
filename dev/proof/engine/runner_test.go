package engine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

var (
	everyKind     = []program.Kind{program.Launch, program.Free, program.Sync, program.Abort, program.Record}
	withoutAborts = []program.Kind{program.Launch, program.Free, program.Sync, program.Record}
	withoutHost   = []program.Kind{program.Launch, program.Free}
)

func bound(ops, goroutines int, kinds []program.Kind) proof.Bound {
	return proof.Bound{Bounds: program.Bounds{Streams: 3, Blocks: 3, Ops: ops, Kinds: kinds}, From: 1, Goroutines: goroutines}
}

// floors are the bounds and how much each has at least: programs, and schedules of the host
// goroutines of those that are run, see [program.Program.Orbit].
var floors = []struct {
	proof.Bound
	programs, schedules uint64
}{
	{bound(4, 2, everyKind), 11_042, 17_941},
	{bound(5, 3, everyKind), 655_540, 1_811_888},
	{bound(6, 2, withoutHost), 4_346_299, 10_868_922},
	{bound(6, 2, withoutAborts), 8_691_141, 21_982_339},
}

// bounds are which of the floors are run, some 40 seconds of a processor by
// default. FENCEPOST_FENCES=full runs them all, which takes twice as long again.
func bounds() (first, end int) {
	switch {
	case os.Getenv("FENCEPOST_FENCES") == "full":
		return 0, len(floors)
	case testing.Short(), raceDetector:
		return 0, 1
	default:
		return 1, 3
	}
}

// TestEveryStepMakesTheWaitsThatItMust runs all programs up to a bound under all
// schedules of their host goroutines on the engine alone.
func TestEveryStepMakesTheWaitsThatItMust(t *testing.T) {
	first, end := bounds()
	for _, g := range floors[first:end] {
		start := time.Now()
		got, err := proof.ExhaustWith(g.Bound, runtime.GOMAXPROCS(0), func() (proof.Checker, error) { return NewRunner(g.Streams), nil })
		if err != nil {
			t.Fatalf("bound %v:\n%v", g.Bound, err)
		}
		if got.Programs < g.programs || got.Schedules < g.schedules || got.Waits == 0 {
			t.Errorf("bound %v of %v has at least %d programs under %d schedules: %d under %d were run, with %d waits", g.Bound, g.Kinds, g.programs, g.schedules, got.Programs, got.Schedules, got.Waits)
		}
		fmt.Printf("engine: programs=%d schedules=%d waits=%d bound=%v kinds=%v in %v\n", got.Programs, got.Schedules, got.Waits, g.Bound, g.Kinds, time.Since(start).Round(time.Millisecond))
	}
}

// TestThePlanIsRight has the whole histories judged that the plan and the engine agree
// on: no order is missed, no wait can be taken away, and nothing else is ordered.
func TestThePlanIsRight(t *testing.T) {
	b := bound(4, 2, everyKind)
	if testing.Short() {
		b.Ops = 3
	}
	r := NewRunner(b.Streams)
	b.Each(1, func(p program.Program) bool {
		proof.EachEngineSchedule(p, b.Goroutines, func(s proof.Schedule) bool {
			if err := r.Check(p, s); err != nil {
				t.Error(err)
			} else if v := r.History().Judge(); v.Bad() {
				t.Errorf("%v\n%v\n%s: %+v\n%v", p, s, v.Why, v, r.History())
			}
			return !t.Failed()
		})
		return !t.Failed()
	})
	if err := r.Close(); err != nil && !t.Failed() {
		t.Error(err)
	}
}

// TestAWaitThatIsNotMadeIsNoticed keeps each wait from the device in turn.
func TestAWaitThatIsNotMadeIsNoticed(t *testing.T) {
	b, lost := bound(3, 2, everyKind), 0
	b.Each(1, func(p program.Program) bool {
		proof.EachEngineSchedule(p, b.Goroutines, func(s proof.Schedule) bool {
			for drop := 1; ; drop++ {
				r := NewRunner(b.Streams)
				r.port.drop = drop
				err := r.Check(p, s)
				if r.port.drop > 0 {
					return true // there are fewer
				}
				if lost++; !errors.Is(err, ErrWaits) {
					t.Errorf("%v\n%v\nwithout wait %d: %v", p, s, drop, err)
					return false
				}
			}
		})
		return !t.Failed()
	})
	if lost < 400 {
		t.Errorf("%d waits were dropped", lost)
	}
}

// shape is what lies on each stream, and what the waits are for: the order in
// which the host enqueued on different streams is left out.
func shape(h *oracle.History) string {
	place := make([]string, h.Len())
	lines := map[uint8][]string{}
	for i, n := range h.Nodes() {
		place[i] = fmt.Sprintf("%d.%d", n.Stream, len(lines[n.Stream]))
		text := fmt.Sprintf("%d:%d:%d", n.Kind, n.Op, n.Block)
		if n.Kind == oracle.Wait && n.From >= 0 {
			text += "<" + place[n.From]
		}
		lines[n.Stream] = append(lines[n.Stream], text)
	}
	var all []string
	for s, line := range lines {
		all = append(all, fmt.Sprintf("%d: %s", s, strings.Join(line, " ")))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// What the reduced schedules lead to is all that the interleavings lead to.
func TestNoInterleavingLeadsElsewhere(t *testing.T) {
	r := NewRunner(3)
	outcomes := func(p program.Program, goroutines int, each func(program.Program, int, func(proof.Schedule) bool)) map[string]proof.Schedule {
		found := map[string]proof.Schedule{}
		each(p, goroutines, func(s proof.Schedule) bool {
			if err := r.Check(p, s); err != nil {
				t.Fatal(err)
			}
			found[shape(r.History())] = slices.Clone(s)
			return true
		})
		return found
	}
	n := 0
	b := bound(4, 3, everyKind)
	b.Each(1, func(p program.Program) bool {
		if n++; testing.Short() && n%20 != 0 {
			return true
		}
		reduced := outcomes(p, b.Goroutines, proof.EachEngineSchedule)
		for what, s := range outcomes(p, b.Goroutines, proof.EachEngineInterleaving) {
			if _, ok := reduced[what]; !ok {
				t.Errorf("%v\n%v leads to what no reduced schedule leads to:\n%s", p, s, what)
			}
		}
		return !t.Failed()
	})
}
