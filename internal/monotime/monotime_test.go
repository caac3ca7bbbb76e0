package monotime

import (
	"math"
	"sync"
	"testing"
	"time"
)

func TestInstantsAreMonotonic(t *testing.T) {
	before := Now()
	at, after := Now(), Now()
	if before > at || at > after || before < 0 {
		t.Errorf("%v, %v, %v", before, at, after)
	}
	if got := (at + Instant(time.Minute)).Since(at); got != time.Minute {
		t.Errorf("a minute is %v", got)
	}
	if got := at.Since(after + 1); got != 0 {
		t.Errorf("%v from a later instant", got)
	}
}

// inStep fails unless the clock says what the system's says. Each reading is between two
// of the other.
func inStep(t *testing.T, readings int) {
	t.Helper()
	for last := Now(); readings > 0; readings-- {
		before := system()
		at := Now()
		after := system()
		if at < before-Instant(Error) || at > after+Instant(Error) {
			t.Errorf("%v, which the system says is between %v and %v", at, before, after)
		}
		if at < last-Instant(Error) {
			t.Errorf("%v after %v", at, last)
		}
		last = at
	}
}

// Lines are drawn all the time, by whoever comes first.
func TestTheClockIsThatOfTheSystem(t *testing.T) {
	var all sync.WaitGroup
	end := Now() + 12*interval
	for range 4 {
		all.Go(func() {
			for Now() < end {
				inStep(t, 1000)
			}
		})
	}
	all.Wait()
	t.Logf("constant rate: %v, line in the end: %+v", known.follow, *current.Load())
}

func TestAStoppedProcessGoesOnWithTheSystemsClock(t *testing.T) {
	defer current.Store(current.Load())
	old := &line{from: ticks() - 1<<40, good: 1 << 20, rate: 1 << point, start: 5, end: 5 + 1<<20}
	current.Store(old)
	inStep(t, 1)
	if current.Load() == old {
		t.Error("the line has ended, and none was drawn")
	}
}

func TestSystemOnly(t *testing.T) {
	until := SystemOnly()
	for end := Now() + 2*interval; Now() < end; {
		inStep(t, 1000)
	}
	if current.Load().good != 0 {
		t.Error("the counter is followed")
	}
	until()
	inStep(t, 1000)
}

// A counter and a clock as they are made up, in nanoseconds and ticks since the last
// reading.
type passage struct {
	elapsed time.Duration
	counted uint64
	// ahead is how far the line is ahead of the clock after that, and good whether
	// another line follows.
	ahead time.Duration
	good  bool
}

const (
	tenth = 100 * time.Millisecond
	// ticksOf is the counter of these tests at 2 GHz.
	ticksOf = uint64(2 * tenth)
)

func TestTheCounterIsFollowedWhileItsRateIsConstant(t *testing.T) {
	for name, passages := range map[string][]passage{
		"constant":                {{tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}, {tenth + 5, ticksOf + 10, 0, true}, {time.Hour, 36000 * ticksOf, 0, true}},
		"becomes fast":            {{tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}, {tenth - 4*time.Microsecond, ticksOf, 4 * time.Microsecond, true}, {tenth, ticksOf + 8000, 0, true}},
		"becomes slow":            {{tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}, {tenth, ticksOf - 8000, 0, true}, {tenth, ticksOf - 8000, 0, true}},
		"another rate":            {{tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}, {tenth, 2 * ticksOf, 0, false}, {tenth, 2 * ticksOf, 0, true}},
		"goes ahead":              {{tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}, {1, 1 << 60, 0, false}, {tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}},
		"goes back":               {{tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}, {tenth, math.MaxUint64 - ticksOf, 0, false}, {tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}},
		"stands still":            {{tenth, 0, 0, false}, {tenth, 0, 0, false}, {tenth, ticksOf, 0, false}},
		"the clock goes back":     {{tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}, {-time.Hour, ticksOf, 0, false}, {tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}},
		"the process was stopped": {{tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}, {time.Hour, ticksOf, 0, false}, {tenth, ticksOf, 0, false}, {tenth, ticksOf, 0, true}},
	} {
		r := reading{ticks: math.MaxUint64 - ticksOf/2, time: processStart.Add(time.Second)} // the counter's end is no end
		c := calibration{follow: true, last: r}
		was := &line{end: interval}
		for i, p := range passages {
			r = reading{ticks: r.ticks + p.counted, time: r.time.Add(p.elapsed)}
			l := c.next(was, r)
			if good := l.good > 0; good != p.good {
				t.Fatalf("%s: after passage %d the line is %+v", name, i, l)
			} else if !good {
				if l.end != r.at()+interval {
					t.Errorf("%s: after passage %d another attempt is made at %v", name, i, l.end-r.at())
				}
			} else if ahead := time.Duration(l.start - r.at()); l.from != r.ticks || (ahead-p.ahead).Abs() > 100*time.Nanosecond ||
				(time.Duration(l.end-r.at())-tenth).Abs() > 100*time.Nanosecond {
				t.Errorf("%s: after passage %d the line is %v ahead and ends after %v", name, i, ahead, l.end-r.at())
			}
			was = l
		}
	}
	none := calibration{last: reading{time: processStart}}
	for i := range 5 {
		at := time.Duration(i+1) * tenth
		if l := none.next(&line{}, reading{ticks: uint64(at), time: processStart.Add(at)}); l.good > 0 {
			t.Error("a counter without a constant rate is followed")
		}
	}
}

func TestTheTimeDoesNotGoBackAtTheEndOfALine(t *testing.T) {
	l := &line{good: 1, end: 1000 + Instant(Error)}
	for now, want := range map[Instant]Instant{1001: l.end, l.end: l.end, l.end + 5: l.end + 5, 900: 900} {
		if got := l.after(now); got != want {
			t.Errorf("at %v the clock says %v", now, got)
		}
	}
	if got := (&line{end: 5}).after(3); got != 3 {
		t.Errorf("the clock says %v after no line", got)
	}
}

func TestTheTimeOfDayFollowsItsSteps(t *testing.T) {
	defer steps.Store(steps.Load())
	steps.Store(&[]step{{zero: processStart}})
	if got := Instant(5).Time(); !got.Equal(processStart.Add(5)) || got.Sub(processStart) != 5 {
		t.Errorf("got %v", got)
	}
	const seen = Instant(time.Minute)
	noteZero(seen, processStart)
	noteZero(seen, processStart.Add(leastStep-1))
	if n := len(*steps.Load()); n != 1 {
		t.Errorf("%d steps without one", n)
	}
	noteZero(seen, processStart.Add(time.Hour).Round(0))
	if got := (seen - 1).Time(); !got.Equal(processStart.Add(time.Minute - 1)) {
		t.Errorf("an instant before the step is %v", got)
	}
	if got := seen.Time(); !got.Equal(processStart.Round(0).Add(time.Hour + time.Minute)) {
		t.Errorf("the instant of the step is %v", got)
	}
	for n := range 2 * maxSteps {
		noteZero(seen+Instant(n), processStart.Add(time.Duration(n)*time.Second))
	}
	all := *steps.Load()
	if n := len(all); n != maxSteps || all[n-1].from != seen+2*maxSteps-1 || !Instant(0).Time().Equal(all[0].zero) {
		t.Errorf("%d steps are kept, from %v to %v", n, all[0].from, all[n-1].from)
	}
}
