package fence

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

var stateNames = map[string]state{
	"announced": announced, "watched": watched, "withdrawn": withdrawn,
	"deferred": deferred, "recorded": recorded, "synthetic": synthetic,
}

// pointCase is a point in one state, on a stream of its own.
type pointCase struct {
	*testing.T
	faults *drivertest.Faults
	stream *Stream
	point  *Point
	in     *core.Intent
	told   bool // the end said that the launch was watched
}

// newPointCase brings a new point into a state, by the calls that do so.
func newPointCase(t *testing.T, in state) *pointCase {
	t.Helper()
	c := &pointCase{T: t, faults: drivertest.NewFaults(&drivertest.Null{}), stream: new(Stream), in: &core.Intent{Uses: make([]core.PreparedUse, 1)}}
	NewOrder(c.faults, false).Add(c.stream, 0, false, new(Counts))
	var err error
	switch in {
	case announced, watched, withdrawn, synthetic:
		c.stream.Enter()
		c.point, err = c.stream.Announce(c.in, false) // with the reference of a block
	case deferred:
		c.stream.Lock()
		c.point, _, err = c.stream.PointForAllocation(1)
		c.point = c.stream.ConfirmReadyPoint(c.point, nil)
		c.stream.Unlock()
	case recorded:
		c.stream.Lock()
		c.point, err = c.stream.Record(1)
		c.stream.Unlock()
	}
	must.Do(t, err)
	switch in {
	case watched:
		if !c.point.watch() {
			t.Fatal("an open launch has ended")
		}
	case withdrawn:
		c.point.Withdraw()
		c.point.End()
	case synthetic:
		c.finishUnrecorded()
		c.point.End()
	}
	if got := c.point.state.Load(); got != in {
		t.Fatalf("the point is in state %d, want %d", got, in)
	}
	return c
}

func (c *pointCase) refuseRecord() {
	c.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
}

func (c *pointCase) finishUnrecorded() {
	c.Helper()
	c.refuseRecord()
	err := c.point.Finish(c.in)
	if err == nil {
		c.Fatal("the driver's refusal was swallowed")
	}
	if err := c.point.FinishUnrecorded(err, func() { c.Error("the work is lost although the stream was synchronised") }); err == nil {
		c.Error("nobody hears of the refusal")
	}
}

func (c *pointCase) must(err error) {
	c.Helper()
	must.Do(c, err)
}

// locked calls f with the stream locked and the point as its ready point, if it is
// one.
func (c *pointCase) locked(f func()) {
	c.stream.Lock()
	defer c.stream.Unlock()
	if c.point.state.Load() == recorded && c.stream.readyPoint == nil { // recorded by another stream meanwhile
		c.point.Retain()
		c.stream.readyPoint = c.point
	}
	f()
}

// calls are the rows of the table in the package comment. A call answers whether the
// launch is open, where it is asked.
var calls = map[string]func(*pointCase) (ended bool){
	"waitEnded": func(c *pointCase) bool {
		select {
		case <-c.point.waitEnded():
			return true
		default:
			return false
		}
	},
	"watch":                      func(c *pointCase) bool { return !c.point.watch() },
	"End after Finish":           func(c *pointCase) bool { c.must(c.point.Finish(c.in)); c.told = c.point.End(); return false },
	"End after FinishUnrecorded": func(c *pointCase) bool { c.finishUnrecorded(); c.told = c.point.End(); return false },
	"End after Withdraw":         func(c *pointCase) bool { c.point.Withdraw(); c.told = c.point.End(); return false },
	"recordDeferred":             func(c *pointCase) bool { c.must(c.point.recordDeferred()); return false },
	"Flush":                      func(c *pointCase) bool { c.locked(func() { c.must(c.stream.Flush()) }); return false },
	"GiveUp":                     func(c *pointCase) bool { c.locked(func() { c.must(c.stream.GiveUp(1)) }); return false },
	"GiveUp with a synchronise": func(c *pointCase) bool {
		c.locked(func() {
			c.refuseRecord()
			c.must(c.stream.GiveUp(1))
		})
		return false
	},
	"LetGo": func(c *pointCase) bool { c.locked(c.stream.LetGo); return false },
	"DropFinalEvent": func(c *pointCase) bool {
		c.stream.Lock()
		defer c.stream.Unlock()
		if c.point.state.Load() == synthetic {
			c.stream.LetGo()
		} else {
			c.stream.NoteCompleted(c.point.seq) // it is called when nobody needs the event
			c.point.Retain()
			c.stream.final.Store(c.point)
		}
		c.stream.DropFinalEvent()
		c.point = c.stream.RetainFinal()
		return false
	},
}

// TestEveryCallMovesAPointAsTheTableSays makes every call of the table in the package
// comment on a point in every state.
func TestEveryCallMovesAPointAsTheTableSays(t *testing.T) {
	rows := tableOfStates(t)
	if len(rows) != len(calls) {
		t.Errorf("the table has %d calls, the test %d", len(rows), len(calls))
	}
	for name, cells := range rows {
		call := calls[name]
		if call == nil {
			t.Errorf("the test does not know the call %q", name)
			continue
		}
		for from, cell := range cells {
			if cell == "-" {
				continue
			}
			t.Run(name+"/"+from, func(t *testing.T) {
				c := newPointCase(t, stateNames[from])
				ended := call(c)
				to, toldOf := strings.CutSuffix(cell, ", told")
				if ended != (to == "ended") {
					t.Errorf("it answers ended: %v", ended)
				}
				want, ok := stateNames[to]
				if !ok {
					want = stateNames[from]
				}
				if got := c.point.state.Load(); got != want {
					t.Errorf("the point is in state %d, want %d", got, want)
				}
				if toldOf != c.told {
					t.Errorf("the end says that the launch was watched: %v", c.told)
				}
				c.consistent()
			})
		}
	}
}

// consistent holds what the rest of the package concludes from a state.
func (c *pointCase) consistent() {
	c.Helper()
	now := c.point.state.Load()
	if c.point.IsOpen() != (now == announced || now == watched) || c.point.isPlaced() != (now == deferred || now == recorded || now == synthetic) ||
		c.point.IsDeferred() != (now == deferred) || c.point.isWithdrawn() != (now == withdrawn) {
		c.Errorf("state %d is taken for another", now)
	}
	if now == synthetic && !c.point.needsNoWait() {
		c.Error("somebody would wait for a synthetic point, which has no event")
	}
	if c.point.isPlaced() && !c.point.clock.covers(c.stream.slot, c.point.seq) {
		c.Errorf("the clock %v of point %d lacks the point", c.point.clock, c.point.seq)
	}
}

// tableOfStates reads the table in the package comment: cells by call and state.
func tableOfStates(t *testing.T) map[string]map[string]string {
	t.Helper()
	text := must.Get(os.ReadFile("doc.go"))(t)
	gap := regexp.MustCompile(`  +`)
	var states []string
	rows := map[string]map[string]string{}
	for line := range strings.Lines(string(text)) {
		row, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t")
		if !ok {
			continue
		}
		cells := gap.Split(row, -1)
		if cells[0] == "call" {
			states = cells[1:]
			continue
		}
		if len(cells) != len(states)+1 {
			t.Fatalf("the row of %q has %d cells for %d states", cells[0], len(cells)-1, len(states))
		}
		rows[cells[0]] = map[string]string{}
		for i, from := range states {
			rows[cells[0]][from] = cells[i+1]
		}
	}
	if len(states) != len(stateNames) {
		t.Fatalf("the table has the states %v", states)
	}
	return rows
}

// A point goes back to its stream's list from every state, and one that was made for
// another's place is forgotten.
func TestTheLastReleaseGivesAPointBackInEveryState(t *testing.T) {
	for name, in := range stateNames {
		c := newPointCase(t, in)
		if c.stream.readyPoint != nil {
			c.stream.detach()
		}
		c.point.ReleaseMany(c.point.refs.Load())
		if got := c.stream.points.take(); got != c.point {
			t.Errorf("%s: the list has %v", name, got)
		}
	}
	c := newPointCase(t, recorded)
	c.stream.LetGo()
	final := c.stream.RetainFinal()
	final.ReleaseMany(2)
	if got := c.stream.points.take(); got != nil {
		t.Errorf("a synthetic point without an event is in the list: %v", got)
	}
	c.point.Release()
}

// A stream that captures is neither given up nor are deferred records made there.
func TestADeferredRecordIsNotMadeWhileTheStreamCaptures(t *testing.T) {
	c := newPointCase(t, deferred)
	c.stream.KeepOut()
	if err := c.point.recordDeferred(); !errors.Is(err, core.ErrStreamMisuse) || !c.point.IsDeferred() {
		t.Errorf("the record was made, or refused with %v", err)
	}
	c.stream.Lock()
	defer c.stream.Unlock()
	if err := c.stream.GiveUp(1); !errors.Is(err, core.ErrStreamMisuse) || c.stream.IsGivenUp() {
		t.Errorf("the stream was given up, or refused with %v", err)
	}
	c.stream.LetIn()
	if err := c.stream.GiveUp(1); err != nil || c.point.state.Load() != recorded {
		t.Errorf("after the capture: %v, state %d", err, c.point.state.Load())
	}
}
