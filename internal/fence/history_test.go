package fence

import (
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
