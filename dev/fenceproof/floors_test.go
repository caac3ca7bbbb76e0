package fenceproof

import (
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof"
)

// amount is how much is run: programs, and schedules of their host goroutines.
type amount struct{ programs, schedules uint64 }

// floors are the bounds of the exhaustive test and how much each has at least.
var floors = []struct {
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

// Other tests' floors, by the number of operations.
var (
	givenUpFloors  = map[int]amount{4: {488, 1157}, 5: {14_623, 87_530}}
	deviceFloors   = map[int]amount{3: {345, 600}, 4: {12_464, 40_508}}
	isolatedFloors = map[int]amount{4: {programs: 1274}, 5: {programs: 20_591}}
)

// floorOf is that of a bound that is run.
func floorOf(t *testing.T, b proof.Bound) amount {
	t.Helper()
	for _, f := range floors {
		if f.String() == b.String() && slices.Equal(f.Kinds, b.Kinds) {
			return f.amount
		}
	}
	t.Errorf("bound %v has no floor", b)
	return amount{}
}

// require demands that so much was run.
func (got amount) require(t *testing.T, what any, floor amount) {
	t.Helper()
	if got.programs < floor.programs || got.schedules < floor.schedules {
		t.Errorf("%v: %d programs under %d schedules were run, at least %d under %d must be", what, got.programs, got.schedules, floor.programs, floor.schedules)
	}
}
