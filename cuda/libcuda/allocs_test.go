//go:build !race

// The race detector makes pools leaky on purpose, so allocations are counted
// without it: scripts/test runs these tests apart.

package libcuda_test

import (
	"slices"
	"testing"
)

// TestTheLaunchPathAllocatesNothing, with the context pushed for each call too.
func TestTheLaunchPathAllocatesNothing(t *testing.T) {
	for _, strict := range []int{0, 1} {
		f := newFake(t)
		b := newBench(t, f, f.open())
		f.set("strict", strict)
		launch := b.launch()
		cold := []string{"ModuleLoad, ModuleUnload", "ModuleFunction", "PoolCreate, PoolDestroy", "HostAlloc, HostFree", "MemCreate, MemRelease", "MemMap, MemAccess, MemUnmap"}
		calls := slices.DeleteFunc(everyCall(b), func(c apiCall) bool { return slices.Contains(cold, c.name) })
		calls = append(calls, apiCall{name: "Launch", run: func() error { return b.d.Launch(launch) }})
		for _, c := range calls {
			if c.name == "Launch" && len(c.symbols) > 0 {
				continue // that one makes its arguments anew
			}
			if allocs := testing.AllocsPerRun(500, func() { must(t, c.run()) }); allocs != 0 {
				t.Errorf("%s: %v allocations", c.name, allocs)
			}
		}
		f.hold(b.stream, 1)
		must(t, b.d.EventRecord(b.event, b.stream))
		if allocs := testing.AllocsPerRun(500, func() { _, _ = b.d.EventQuery(b.event) }); allocs != 0 {
			t.Errorf("EventQuery of pending work: %v allocations", allocs)
		}
		f.hold(b.stream, 0)
		b.close()
	}
}
