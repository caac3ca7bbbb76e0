package oracle

import "testing"

// The cells of a page of two, and of the page behind it.
const (
	half, otherHalf Cells = 1, 2
	page                  = half | otherHalf
	nextHalf        Cells = 4
)

// lay puts an allocation at some cells, in a run of free ones.
func (s script) lay(stream uint8, op int16, block uint8, cells, run Cells) int32 {
	return s.Add(Node{Kind: Alloc, Stream: stream, Op: op, Block: block, Cells: cells, Near: run})
}

func (s script) free(stream uint8, op int16, block uint8, cells, run Cells) int32 {
	return s.Add(Node{Kind: Free, Stream: stream, Op: op, Block: block, Cells: cells, Near: run})
}

func (s script) launch(stream uint8, op int16, block uint8) int32 {
	s.start(stream, op, block)
	return s.end(stream, op, block)
}

// used is a block of a page on X that was written and freed there.
func used() (s script, free int32) {
	s = newScript()
	s.lay(onX, 0, 0, page, page)
	s.launch(onX, 1, 0)
	return s, s.free(onX, 2, 0, page, page)
}

func (s script) verdict(t *testing.T, what string, want Verdict) {
	t.Helper()
	v := s.Judge()
	v.Why, v.Schedules, v.Waits = "", 0, 0
	if v != want {
		t.Errorf("%s: %+v, want %+v\n%v", what, v, want, s.History)
	}
}

func TestMemoryIsUsedAgainBehindItsFree(t *testing.T) {
	s, _ := used()
	s.lay(onX, 3, 1, half, page)
	s.launch(onX, 4, 1)
	s.verdict(t, "on the same stream", Verdict{})

	s, _ = used()
	s.lay(onY, 3, 1, otherHalf, page)
	s.launch(onY, 4, 1)
	s.verdict(t, "half of it on another stream, without a wait", Verdict{Missed: 1, Wrong: 1})

	s, free := used()
	s.wait(onY, 3, free, 0, 0)
	s.lay(onY, 3, 1, half, page)
	s.launch(onY, 4, 1)
	s.verdict(t, "with a wait", Verdict{})

	s, free = used()
	s.Learn(free)
	s.lay(onY, 3, 1, half, page)
	s.verdict(t, "when the host has seen it done", Verdict{})

	s, _ = used()
	s.lay(onX, 3, 1, half, page)
	s.lay(onX, 4, 2, half, page)
	s.verdict(t, "memory of a live block", Verdict{Missed: 1, Wrong: 1})
}

// TestUndeclaredWorkBeforeAFreeIsWaitedFor has work on the free's stream that no
// launch declares: who waits for the launch alone has not waited for that.
func TestUndeclaredWorkBeforeAFreeIsWaitedFor(t *testing.T) {
	s := newScript()
	s.lay(onX, 0, 0, page, page)
	used := s.launch(onX, 1, 0)
	undeclared := s.Add(Node{Kind: Work, Stream: onX, Op: 5})
	s.free(onX, 2, 0, page, page)
	s.wait(onY, 3, used, 0, 0)
	s.lay(onY, 3, 1, page, page)
	s.launch(onY, 4, 1)
	v := s.Judge()
	if v.Missed != 1 || s.Ordered(undeclared, int32(s.Len()-1)) {
		t.Errorf("%+v\n%v", v, s.History)
	}
}

func TestAWaitForMemoryIsNeeded(t *testing.T) {
	s, free := used()
	s.wait(onY, 3, free, 0, 0)
	s.lay(onY, 3, 1, nextHalf, nextHalf)
	s.verdict(t, "fresh memory", Verdict{Redundant: 1, Extra: 1})

	s, free = used()
	s.lay(onX, 3, 1, nextHalf, nextHalf)
	s.wait(onY, 4, s.launch(onX, 5, 1), 0, 0) // brings the free
	s.start(onY, 4, 1)
	s.end(onY, 4, 1)
	s.wait(onY, 6, free, 0, 0)
	s.lay(onY, 6, 2, half, page)
	s.verdict(t, "memory behind which the stream is already", Verdict{Redundant: 1})
}

// TestAnAllocationMayWaitForMore has what a page's taker may wait for beyond the blocks that lay
// in its memory.
func TestAnAllocationMayWaitForMore(t *testing.T) {
	s, _ := used()
	s.lay(onX, 3, 1, nextHalf, nextHalf)
	later := s.launch(onX, 4, 1)
	s.wait(onY, 5, later, 0, 0) // the stream has come so far
	s.lay(onY, 5, 2, half, page)
	s.verdict(t, "a point that was recorded late", Verdict{})

	for _, merged := range []bool{false, true} {
		run, want := nextHalf, Verdict{Redundant: 1, Extra: 1}
		if merged {
			run, want = page|nextHalf, Verdict{Excused: 1}
		}
		s, _ := used()
		s.lay(onX, 3, 1, nextHalf, nextHalf)
		s.lay(onX, 4, 2, nextHalf<<1, nextHalf<<1)
		s.wait(onZ, 6, s.launch(onX, 5, 2), 0, 0) // brings the first free
		s.start(onZ, 6, 2)
		s.end(onZ, 6, 2)
		s.launch(onX, 7, 1)
		s.wait(onZ, 9, s.free(onX, 8, 1, nextHalf, run), 0, 0)
		s.lay(onZ, 9, 3, page, page)
		s.verdict(t, "a younger free next to it", want)
	}
}

// TestAFreeWaitsForNothing has a block that another stream uses: its free may put no wait on its own stream,
// whatever that is good for, and whoever gets the memory comes after the use.
func TestAFreeWaitsForNothing(t *testing.T) {
	const atFree, atReuse, never = 0, 1, 2
	for at, want := range []Verdict{atFree: {Redundant: 1, Extra: 3}, atReuse: {}, never: {Missed: 1, Wrong: 1}} {
		s := newScript()
		ready := s.lay(onX, 0, 0, page, page)
		s.wait(onY, 1, ready, 0, 0)
		use := s.launch(onY, 1, 0)
		if at == atFree {
			s.wait(onX, 2, use, 0, 0)
		}
		s.Add(Node{Kind: Free, Stream: onX, Op: 2, Block: 0, Cells: page, Near: page, Lazy: true})
		if at == atReuse {
			s.wait(onX, 3, use, 0, 0)
		}
		s.lay(onX, 3, 1, half, page)
		s.launch(onX, 4, 1)
		s.verdict(t, "a use on another stream", want)
	}
}
