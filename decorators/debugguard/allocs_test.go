//go:build !race

// The race detector makes pools leaky on purpose, so allocations are counted
// without it: scripts/test runs these tests apart.

package debugguard_test

import "testing"

func TestHotPathAllocatesNothing(t *testing.T) {
	for _, l := range layers(t) {
		uses := threeUses(t, l.r)
		for range 4096 { // until tombstones are recycled
			pair(t, l.r)
		}
		if n := testing.AllocsPerRun(2000, func() { pair(t, l.r) }); n != 0 {
			t.Errorf("%s: %v allocations for a pair", l.name, n)
		}
		if n := testing.AllocsPerRun(2000, func() { launch(t, l.r, uses) }); n != 0 {
			t.Errorf("%s: %v allocations for a launch", l.name, n)
		}
	}
}
