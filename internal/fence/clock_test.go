package fence

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawClock(r *rapid.T, label string) clock {
	var c clock
	for slot, seq := range rapid.MapOfN(rapid.IntRange(0, 9), rapid.Uint64Range(0, 5), 0, 6).Draw(r, label) {
		c = c.set(slot, seq)
	}
	return c
}

func TestClockJoinIsTheLeastUpperBound(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a, b := drawClock(r, "a"), drawClock(r, "b")
		joined := clock(nil).copyFrom(a).join(b)
		if !slices.IsSortedFunc(joined, func(a, b tick) int { return cmp.Compare(a.slot, b.slot) }) {
			r.Fatalf("%v join %v is %v", a, b, joined)
		}
		for slot := range 11 {
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
	a := clock(nil).set(0, 1).set(1, 2)
	b := clock(nil).copyFrom(a)
	a = a.set(0, 9)
	if b.at(0) != 1 || a.at(0) != 9 {
		t.Errorf("a copy shares memory: %v, %v", a, b)
	}
}
