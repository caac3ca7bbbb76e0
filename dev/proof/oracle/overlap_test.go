package oracle

import "testing"

// The streams of these histories.
const (
	onX, onY, onZ = 0, 1, 2
)

// script makes a history.
type script struct{ *History }

func newScript() script { return script{New(3)} }

func (s script) alloc(stream uint8, op int16, block uint8) int32 {
	return s.Add(Node{Kind: Alloc, Stream: stream, Op: op, Block: block, Cells: 1 << block})
}

// start is the begin and the work of a launch that writes a block.
func (s script) start(stream uint8, op int16, block uint8) int32 {
	n := Node{Stream: stream, Op: op, Writes: 1 << block}
	s.Add(n)
	n.Kind = Work
	return s.Add(n)
}

func (s script) end(stream uint8, op int16, block uint8) int32 {
	return s.Add(Node{Kind: End, Stream: stream, Op: op, Writes: 1 << block})
}

func (s script) wait(stream uint8, op int16, from, since, known int32) {
	s.Add(Node{Kind: Wait, Stream: stream, Op: op, From: from, Since: since, Known: known})
}

func (s script) expect(t *testing.T, what string, redundant, extra int) {
	t.Helper()
	if v := s.Judge(); v.Missed+v.Wrong > 0 || v.Redundant != redundant || v.Extra != extra {
		t.Errorf("%s: %+v, want %d redundant and %d extra\n%v", what, v, redundant, extra, s.History)
	}
}

// overtaken is a launch whose wait others overtook between its prepare and its
// work. Its call began at since.
func overtaken(since int32, again bool) script {
	s := newScript()
	s.alloc(onX, 0, 0)
	s.alloc(onX, 1, 1)
	s.start(onX, 2, 0)
	first := s.end(onX, 2, 0)
	s.start(onX, 3, 1)
	second := s.end(onX, 3, 1)
	s.wait(onY, 4, first, since, 0)
	s.wait(onY, 5, second, since, 0)
	if again {
		s.wait(onY, 5, first, since, 0)
	}
	s.start(onY, 5, 1)
	s.end(onY, 5, 1)
	s.start(onY, 4, 0)
	s.end(onY, 4, 0)
	return s
}

func TestAWaitIsJudgedWhereItWasQueuedIfCallsOverlap(t *testing.T) {
	overtaken(0, false).expect(t, "one call at a time", 1, 0)
	overtaken(1, false).expect(t, "overlapping calls", 0, 0)
	overtaken(1, true).expect(t, "a wait that its own call made needless", 1, 0)
}

func TestWorkBehindAWaitMayComeAfterWhatThatIsFor(t *testing.T) {
	for since, extra := range []int{1, 0} {
		s := newScript()
		s.alloc(onX, 0, 0)
		s.alloc(onY, 1, 1)
		s.start(onX, 2, 0)
		s.wait(onY, 3, s.end(onX, 2, 0), int32(since), 0)
		s.start(onY, 4, 1) // by another call, before the first has returned
		s.end(onY, 4, 1)
		s.start(onY, 3, 0)
		s.end(onY, 3, 0)
		s.expect(t, "work behind a wait", 0, extra)
	}
}

func TestAWaitNeedNotKnowWhatAnotherCallHasJustLearned(t *testing.T) {
	for _, late := range []bool{false, true} {
		s := newScript()
		s.alloc(onX, 0, 0)
		s.start(onX, 1, 0)
		first := s.end(onX, 1, 0)
		s.Learn(first)
		if !late {
			s.Sure(0)
		}
		since := s.Moment()
		s.wait(onY, 2, first, since, 0)
		if late {
			s.Sure(0)
		}
		s.start(onY, 2, 0)
		s.end(onY, 2, 0)
		want := 1
		if late {
			want = 0
		}
		s.expect(t, "a wait for what the host has seen done", want, 0)
	}
}

func TestAnEventNeedNotStandForAnAllocationUnderWay(t *testing.T) {
	for _, underWay := range []bool{false, true} {
		s := newScript()
		s.alloc(onX, 0, 0)
		second := s.alloc(onX, 1, 1)
		if !underWay {
			s.Return(second)
		}
		known, since := s.Moment(), s.Moment()
		s.wait(onY, 2, second, since, known) // for the first
		s.start(onY, 2, 0)
		s.end(onY, 2, 0)
		if underWay {
			s.Return(second)
		}
		s.wait(onY, 3, second, s.Moment(), s.Moment())
		s.start(onY, 3, 1)
		s.end(onY, 3, 1)
		want := 1
		if underWay {
			want = 0
		}
		s.expect(t, "a second wait for the end of a stream", want, 0)
	}
}

func TestWorkPutOnAStreamDuringAnAllocationMayComeBeforeItsEvent(t *testing.T) {
	for _, during := range []bool{false, true} {
		s := newScript()
		s.alloc(onX, 0, 0)
		made := s.alloc(onX, 1, 1)
		if !during {
			s.Return(made)
		}
		work := s.start(onX, 2, 0)
		if during {
			s.Return(made)
		}
		s.end(onX, 2, 0)
		s.wait(onZ, 3, work, s.Moment(), s.Moment())
		s.start(onZ, 3, 1)
		s.end(onZ, 3, 1)
		want := 1
		if during {
			want = 0
		}
		s.expect(t, "a wait for an allocation and what came behind it", 0, want)
	}
}
