package fence

import (
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// point is a recorded point of a test stream, without an event.
func point(s *Stream, seq uint64, sees clock) *Point {
	e := &Point{stream: s, seq: seq, clock: clock(nil).copyFrom(sees).set(s.slot, seq)}
	e.refs.Store(1)
	e.state.Store(recorded)
	return e
}

// finish adds a finished use to b.
func finish(b *History, e *Point, kind core.Access) {
	f := new(Plan)
	e.Retain()
	b.accesses = append(b.accesses, Access{point: e, kind: kind})
	b.prune(f)
	f.Drop()
}

// testStreams are streams of one order over a device that does nothing.
func testStreams(n int) []*Stream {
	order := NewOrder(&drivertest.Null{}, false)
	var all []*Stream
	for range n {
		s := new(Stream)
		order.Add(s, 0, false, new(Counts))
		all = append(all, s)
	}
	return all
}

func seqs(b *History) map[uint64]core.Access {
	m := map[uint64]core.Access{}
	for _, a := range b.accesses {
		m[a.point.seq] = a.kind
	}
	return m
}

func TestTwoLaunchesOfOneStreamMayFinishInEitherOrder(t *testing.T) {
	s := testStreams(1)[0]
	older, newer := point(s, 1, nil), point(s, 2, nil)
	for name, order := range map[string][]*Point{"in order": {older, newer}, "late": {newer, older}} {
		for _, kinds := range [][2]core.Access{{core.Write, core.Write}, {core.Read, core.Read}, {core.Read, core.Write}} {
			b := new(History)
			for _, e := range order {
				finish(b, e, kinds[e.seq-1])
			}
			if got := seqs(b); len(got) != 1 || got[2] != kinds[1] {
				t.Errorf("%s, %v: kept %v, want the newer alone", name, kinds, got)
			}
		}
	}
}

func TestALateReadDoesNotHideBehindANewerWriteOfAnotherStream(t *testing.T) {
	s := testStreams(2)
	b := new(History)
	finish(b, point(s[0], 1, nil), core.Write) // knows nothing of stream 1
	finish(b, point(s[1], 1, nil), core.Read)
	if len(b.accesses) != 2 {
		t.Errorf("kept %d accesses, want both: neither is ordered after the other", len(b.accesses))
	}
}

func TestAReadNeverCoversAWrite(t *testing.T) {
	s := testStreams(2)
	b := new(History)
	w := point(s[0], 1, nil)
	finish(b, w, core.Write)
	finish(b, point(s[1], 1, w.clock), core.Read)
	if len(b.accesses) != 2 {
		t.Errorf("the write was dropped, and later readers would not wait for it")
	}
	finish(b, point(s[1], 2, w.clock), core.Write)
	if got := seqs(b); len(got) != 1 || got[2] != core.Write {
		t.Errorf("kept %v, want the covering write alone", got)
	}
}

func TestEachKeptAccessHoldsOneReference(t *testing.T) {
	s := testStreams(2)
	b := new(History)
	w, r := point(s[0], 1, nil), point(s[1], 1, nil)
	finish(b, w, core.Write)
	finish(b, r, core.Read)
	next := point(s[0], 2, r.clock)
	finish(b, next, core.Write)
	for name, want := range map[*Point]int32{w: 1, r: 1, next: 2} {
		if got := name.refs.Load(); got != want {
			t.Errorf("event %d of slot %d has %d references, want %d", name.seq, name.stream.slot, got, want)
		}
	}
}

func TestRecordedUseDropsOnlyOlderUsesOfItsStream(t *testing.T) {
	s := testStreams(2)
	b, f := new(History), new(Plan)
	finish(b, point(s[0], 1, nil), core.Write)
	other := point(s[1], 5, nil)
	b.AddRecorded(other, f)
	b.AddRecorded(point(s[1], 7, clock(nil).set(0, 9)), f)
	if got := seqs(b); len(got) != 2 || got[1] != core.Write || got[7] != core.ReadWrite {
		t.Errorf("kept %v, want the write and the newer recorded use", got)
	}
	b.AddRecorded(point(s[1], 6, nil), f)
	if got := seqs(b); got[7] != core.ReadWrite {
		t.Errorf("kept %v: a late recorded use took the newer one away", got)
	}
	f.Drop()
	if other.refs.Load() != 1 {
		t.Errorf("the dropped use holds %d references", other.refs.Load())
	}
}

// What a launch has learned of two points at one block holds at the next for those two, and for no others.
func TestALaunchKnowsOfWhichPointsOneCoversTheOther(t *testing.T) {
	s := testStreams(3)
	old := point(s[0], 1, nil)
	newer := point(s[1], 1, clock(nil).set(s[0].slot, 1))
	for name, c := range map[string]struct {
		old, newer         *Point
		oldKind, newerKind core.Access
		left               int
	}{
		"the same":               {old, newer, core.Write, core.Write, 1},
		"another older one":      {point(s[2], 1, nil), newer, core.Read, core.Read, 2},
		"another newer one":      {old, point(s[2], 1, nil), core.Read, core.Read, 2},
		"a read behind a write":  {old, newer, core.Write, core.Read, 2},
		"a read behind a read":   {old, newer, core.Read, core.Read, 1},
		"a write behind a read":  {old, newer, core.Read, core.Write, 1},
		"an open launch's point": {old, &Point{stream: s[1], seq: 1}, core.Read, core.Read, 2},
	} {
		t.Run(name, func(t *testing.T) {
			plan := new(Plan)
			first := &History{accesses: []Access{{point: old, kind: core.Write}, {point: newer, kind: core.Write}}}
			old.Retain()
			first.prune(plan)
			c.old.Retain()
			next := &History{accesses: []Access{{point: c.old, kind: c.oldKind}, {point: c.newer, kind: c.newerKind}}}
			next.prune(plan)
			plan.Drop()
			if len(first.accesses) != 1 || len(next.accesses) != c.left {
				t.Errorf("%d and %d accesses are left, want 1 and %d", len(first.accesses), len(next.accesses), c.left)
			}
		})
	}
	for name, change := range map[string]func(*Plan, *Point, *Point){
		"the newer one is another launch's": func(_ *Plan, _, newer *Point) { newer.seq, newer.clock = 2, clock(nil).set(s[1].slot, 2) },
		"and that has not ended":            func(_ *Plan, _, newer *Point) { newer.state.Store(announced) },
		"the older one is another launch's": func(plan *Plan, old, _ *Point) {
			plan.Drop()
			old.seq = 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan, old := new(Plan), point(s[0], 1, nil)
			newer := point(s[1], 1, old.clock)
			accesses := []Access{{point: old, kind: core.Read}, {point: newer, kind: core.Read}}
			old.Retain()
			first := &History{accesses: slices.Clone(accesses)}
			first.prune(plan)
			change(plan, old, newer)
			next := &History{accesses: accesses}
			if next.prune(plan); len(first.accesses) != 1 || len(next.accesses) != 2 {
				t.Errorf("%d and %d accesses are left, want 1 and 2", len(first.accesses), len(next.accesses))
			}
		})
	}
}
