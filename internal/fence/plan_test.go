package fence

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// ordered returns how many waits ordering s after the accesses took.
func ordered(t *testing.T, s *Stream, accesses ...Access) int {
	t.Helper()
	f := new(Plan)
	for _, a := range accesses {
		f.add(s, &a, 0)
	}
	n := 0
	s.mu.Lock()
	defer s.mu.Unlock()
	must.Do(t, f.queue(s, func(*dependency) { n++ }))
	f.Drop()
	for _, a := range accesses {
		if a.point.stream != s && !a.point.isCompleted() && !s.clock.covers(a.point.stream.slot, a.point.seq) {
			t.Errorf("slot %d is not ordered after %d of slot %d", s.slot, a.point.seq, a.point.stream.slot)
		}
	}
	return n
}

func TestFenceDropsWhatAnotherWaitOrders(t *testing.T) {
	s := testStreams(4)
	first := point(s[0], 3, nil)
	second := point(s[1], 1, first.clock)
	third := point(s[2], 1, second.clock)
	all := []Access{{point: first}, {point: second}, {point: third}}
	if n := ordered(t, s[3], all...); n != 1 {
		t.Errorf("%d waits for a chain, want 1", n)
	}
	if n := ordered(t, s[3], all...); n != 0 {
		t.Errorf("%d waits the second time", n)
	}
}

func TestFenceTakesTheNewestOfEachStream(t *testing.T) {
	s := testStreams(3)
	if n := ordered(t, s[2], Access{point: point(s[0], 1, nil)}, Access{point: point(s[0], 4, nil)},
		Access{point: point(s[0], 2, nil)}, Access{point: point(s[1], 1, nil)}); n != 2 {
		t.Errorf("%d waits for two unordered streams", n)
	}
}

func TestFenceSkipsItsOwnStreamAndWhatIsDone(t *testing.T) {
	s := testStreams(2)
	s[0].NoteCompleted(2)
	if n := ordered(t, s[1], Access{point: point(s[0], 2, nil)}, Access{point: point(s[1], 1, nil)}); n != 0 {
		t.Errorf("%d waits, want none", n)
	}
	if n := ordered(t, s[1], Access{point: point(s[0], 3, nil)}); n != 1 {
		t.Errorf("%d waits for what is not done", n)
	}
}

func TestFailedWaitLeavesTheFenceClean(t *testing.T) {
	s := testStreams(3)
	faults := drivertest.NewFaults(&drivertest.Null{})
	s[2].port = faults
	faults.FailMethod(drivertest.StreamWait, 1, driver.InvalidHandle)
	f := new(Plan)
	a, b := Access{point: point(s[0], 1, nil)}, Access{point: point(s[1], 1, nil)}
	f.add(s[2], &a, 0)
	f.add(s[2], &b, 0)
	if err := f.queue(s[2], nil); err == nil {
		t.Fatal("the failure was swallowed")
	}
	f.Drop()
	if s[2].clock.covers(0, 1) || s[2].clock.covers(1, 1) {
		t.Errorf("the clock %v claims an order that was not queued", s[2].clock)
	}
	for _, d := range s[2].noted {
		if d.point != nil {
			t.Errorf("an event was left behind")
		}
	}
	if n := ordered(t, s[2], a, b); n != 2 {
		t.Errorf("%d waits after the failure, want 2", n)
	}
}

func TestSequenceIsTakenWithTheRecord(t *testing.T) {
	s := testStreams(1)[0]
	faults := drivertest.NewFaults(&drivertest.Null{})
	s.port, s.points.port = faults, faults
	faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	if _, err := s.Record(1); err == nil || s.seq != 0 {
		t.Fatalf("a failed record: %v, sequence %d", err, s.seq)
	}
	e, err := s.Record(1)
	if err != nil || e.seq != 1 || !e.clock.covers(s.slot, 1) {
		t.Fatalf("the next record: %v, %+v", err, e)
	}
	if n := faults.Calls(drivertest.EventCreate); n != 1 {
		t.Errorf("%d events made, want the one that came back", n)
	}
	e.Release()
}

func TestEventsGoBackWhenNobodyRefersToThem(t *testing.T) {
	s := testStreams(1)[0]
	e, err := s.Record(1)
	must.Do(t, err)
	e.Retain()
	e.Release()
	if len(s.points.free) != 0 {
		t.Fatal("the event was given back while referred to")
	}
	e.Release()
	if again, err := s.Record(core.DefaultStream); err != nil || again != e || again.seq != 2 {
		t.Errorf("the event was not reused: %v, %+v", err, again)
	}
	if e.tryRetain(); e.refs.Load() != 2 {
		t.Errorf("%d references", e.refs.Load())
	}
	e.Release()
	e.Release()
	if e.tryRetain() {
		t.Error("a reference was taken to an event that was given back")
	}
}

func TestClosedEventListDestroysWhatComesBack(t *testing.T) {
	s := testStreams(1)[0]
	faults := drivertest.NewFaults(&drivertest.Null{})
	s.port, s.points.port = faults, faults
	idle, _ := s.Record(1)
	busy, _ := s.Record(1)
	idle.Release()
	must.Do(t, s.points.close())
	busy.Release()
	if n := faults.Calls(drivertest.EventDestroy); n != 2 || s.points.made.Load() != 0 {
		t.Errorf("%d events destroyed, %d left", n, s.points.made.Load())
	}
}
