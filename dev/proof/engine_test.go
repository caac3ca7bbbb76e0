package proof

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

var (
	withoutAborts = []program.Kind{program.Launch, program.Free, program.Sync, program.Record}
	withoutHost   = []program.Kind{program.Launch, program.Free}
)

func bound(ops, goroutines int, kinds []program.Kind) Bound {
	return Bound{Bounds: program.Bounds{Streams: 3, Blocks: 3, Ops: ops, Kinds: kinds}, From: 1, Goroutines: goroutines}
}

// floors are the bounds and how much each has at least: programs, and schedules of the host
// goroutines of those that are run, see [program.Program.Orbit].
var floors = []struct {
	Bound
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
		got, err := Exhaust(g.Bound, runtime.GOMAXPROCS(0), func() (Checker, error) { return NewEngineRunner(g.Streams), nil })
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
	r := NewEngineRunner(b.Streams)
	b.Each(1, func(p program.Program) bool {
		Explorer{Goroutines: b.Goroutines, Engine: true}.Each(p, func(s Schedule) bool {
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
		Explorer{Goroutines: b.Goroutines, Engine: true}.Each(p, func(s Schedule) bool {
			for drop := 1; ; drop++ {
				r := NewEngineRunner(b.Streams)
				r.device.Drop = drop
				err := r.Check(p, s)
				if r.device.Calls.Waits < drop {
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
	if lost < 250 {
		t.Errorf("%d waits were dropped", lost)
	}
}

func TestNoInterleavingOfTheEngineLeadsElsewhere(t *testing.T) {
	r, b := NewEngineRunner(3), bound(4, 3, everyKind)
	n := 0
	b.Each(1, func(p program.Program) bool {
		if n++; testing.Short() && n%20 != 0 {
			return true
		}
		losesNothing(t, p, Explorer{Goroutines: b.Goroutines, Engine: true}, func(s Schedule) (*oracle.History, error) { return r.History(), r.Check(p, s) })
		return !t.Failed()
	})
}
