package fenceproof

import (
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof"
)

// amount is how much is run: programs, and schedules of their host goroutines.
type amount struct{ programs, schedules uint64 }

// golden are the bounds of the exhaustive test and how much each has. What changes the
// fences or moves them changes none of it; what changes the programs changes it
// here too, and not to less.
var golden = []struct {
	proof.Bound
	amount
}{
	{bound(3, 2), amount{309, 543}},
	{bound(3, 3), amount{309, 543}},
	{withReaps(3, 2), amount{309, 715}},
	{bound(4, 2), amount{11_042, 36_330}},
	{withReaps(4, 2), amount{11_042, 58_873}},
	{bound(4, 3), amount{11_042, 46_807}},
	{bound(5, 2), amount{655_540, 4_296_373}},
	{withReaps(5, 2), amount{655_540, 8_411_800}},
	{bound(5, 3), amount{655_540, 7_865_334}},
	{withoutAborts(6, 2), amount{8_536_437, 175_699_021}},
	{bound(6, 2), amount{59_253_567, 802_080_976}},
}

// Other tests' amounts, by the number of operations.
var (
	goldenGivenUp  = map[int]amount{4: {488, 1157}, 5: {14_623, 87_530}}
	goldenDevice   = map[int]amount{3: {345, 600}, 4: {12_464, 40_508}}
	goldenIsolated = map[int]uint64{4: 1274, 5: 20_591}
)

// amountOf is that of a bound that is run.
func amountOf(t *testing.T, b proof.Bound) amount {
	t.Helper()
	for _, g := range golden {
		if g.String() == b.String() && slices.Equal(g.Kinds, b.Kinds) {
			return g.amount
		}
	}
	t.Errorf("bound %v is not among the golden ones", b)
	return amount{}
}

// TestTheBoundsHaveAsManyProgramsAsEver counts the programs of every bound, run or not.
func TestTheBoundsHaveAsManyProgramsAsEver(t *testing.T) {
	for _, g := range golden {
		if n := count(g.Bound); n != g.programs {
			t.Errorf("bound %v has %d programs, and had %d", g.Bound, n, g.programs)
		}
	}
	for _, b := range bounds() {
		amountOf(t, b)
	}
}
