package cuda

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
)

func drawClock(r *rapid.T, label string) clock {
	return clock(rapid.SliceOfN(rapid.Uint64Range(0, 5), 0, 4).Draw(r, label))
}

func TestClockJoinIsTheLeastUpperBound(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a, b := drawClock(r, "a"), drawClock(r, "b")
		joined := clock(nil).copyFrom(a).join(b)
		for slot := range 6 {
			if want := max(a.at(slot), b.at(slot)); joined.at(slot) != want {
				r.Fatalf("slot %d of %v join %v is %d", slot, a, b, joined.at(slot))
			}
		}
	})
}

func TestClockGrowsToItsWidestSlot(t *testing.T) {
	c := clock(nil).set(3, 7).set(1, 2)
	for slot, want := range map[int]uint64{0: 0, 1: 2, 3: 7, 9: 0} {
		if c.at(slot) != want {
			t.Errorf("slot %d is %d, want %d", slot, c.at(slot), want)
		}
	}
	if c = c.set(3, 5); c.at(3) != 7 {
		t.Errorf("an older sequence number lowered the clock to %d", c.at(3))
	}
	if !c.covers(3, 7) || c.covers(3, 8) || !c.covers(9, 0) {
		t.Errorf("%v covers the wrong things", c)
	}
}

func TestClockCopyIsIndependent(t *testing.T) {
	a := clock{1, 2}
	b := clock(nil).copyFrom(a)
	a = a.set(0, 9)
	if b.at(0) != 1 || a.at(0) != 9 {
		t.Errorf("a copy shares memory: %v, %v", a, b)
	}
}

// point is a recorded event of a test stream, without a driver.
func point(s *stream, seq uint64, sees clock) *event {
	e := &event{stream: s, seq: seq, clock: clock(nil).copyFrom(sees).set(s.slot, seq)}
	e.refs.Store(1)
	e.state.Store(placed)
	return e
}

// finish adds a finished use to b.
func finish(b *block, e *event, kind core.Access) {
	f := new(fence)
	e.retain()
	b.accesses = append(b.accesses, access{event: e, kind: kind})
	b.prune(f)
	f.drop()
}

func testStreams(n int) []*stream {
	var all []*stream
	for slot := range n {
		all = append(all, newStream(nil, 0, slot, 0, new(books)))
	}
	return all
}

func seqs(b *block) map[uint64]core.Access {
	m := map[uint64]core.Access{}
	for _, a := range b.accesses {
		m[a.event.seq] = a.kind
	}
	return m
}

func TestTwoLaunchesOfOneStreamMayFinishInEitherOrder(t *testing.T) {
	s := testStreams(1)[0]
	older, newer := point(s, 1, nil), point(s, 2, nil)
	for name, order := range map[string][]*event{"in order": {older, newer}, "late": {newer, older}} {
		for _, kinds := range [][2]core.Access{{core.Write, core.Write}, {core.Read, core.Read}, {core.Read, core.Write}} {
			b := new(block)
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
	b := new(block)
	finish(b, point(s[0], 1, nil), core.Write) // knows nothing of stream 1
	finish(b, point(s[1], 1, nil), core.Read)
	if len(b.accesses) != 2 {
		t.Errorf("kept %d accesses, want both: neither is ordered after the other", len(b.accesses))
	}
}

func TestAReadNeverCoversAWrite(t *testing.T) {
	s := testStreams(2)
	b := new(block)
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
	b := new(block)
	w, r := point(s[0], 1, nil), point(s[1], 1, nil)
	finish(b, w, core.Write)
	finish(b, r, core.Read)
	next := point(s[0], 2, r.clock)
	finish(b, next, core.Write)
	for name, want := range map[*event]int32{w: 1, r: 1, next: 2} {
		if got := name.refs.Load(); got != want {
			t.Errorf("event %d of slot %d has %d references, want %d", name.seq, name.stream.slot, got, want)
		}
	}
}

func TestRecordedUseDropsOnlyOlderUsesOfItsStream(t *testing.T) {
	s := testStreams(2)
	b, f := new(block), new(fence)
	finish(b, point(s[0], 1, nil), core.Write)
	other := point(s[1], 5, nil)
	b.addRecordedUse(access{event: other, kind: core.ReadWrite}, f)
	b.addRecordedUse(access{event: point(s[1], 7, clock{9}), kind: core.ReadWrite}, f)
	if got := seqs(b); len(got) != 2 || got[1] != core.Write || got[7] != core.ReadWrite {
		t.Errorf("kept %v, want the write and the newer recorded use", got)
	}
	b.addRecordedUse(access{event: point(s[1], 6, nil), kind: core.ReadWrite}, f)
	if got := seqs(b); got[7] != core.ReadWrite {
		t.Errorf("kept %v: a late recorded use took the newer one away", got)
	}
	f.drop()
	if other.refs.Load() != 1 {
		t.Errorf("the dropped use holds %d references", other.refs.Load())
	}
}
