package cuda

import (
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// The table of the leases answers as a map does, for ids that meet in it too.
func TestLeasesAreAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, got := map[core.StreamID]*stream{}, newLeases(0)
		id := rapid.OneOf(rapid.Uint64Range(0, 9), rapid.SampledFrom([]uint64{16, 32, 64, 1 << 40, 1<<64 - 2}))
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			of := core.StreamID(id.Draw(t, "id"))
			delete(want, of)
			got.take(of)
			if rapid.Bool().Draw(t, "leased") {
				want[of] = new(stream)
				got = got.put(of, want[of])
			}
			if all := maps.Collect(got.each); !maps.Equal(all, want) {
				t.Fatalf("got %v, want %v", all, want)
			}
			for asked := range core.StreamID(66) {
				if asked == 65 {
					asked = unleased
				}
				if got.find(asked) != want[asked] {
					t.Fatalf("lease %d is on %p, want %p", asked, got.find(asked), want[asked])
				}
			}
		}
	})
}

// A lease is found from when it was put until it is taken, and never on another's stream, whoever comes and goes meanwhile.
func TestLeasesAreFoundWhileOthersComeAndGo(t *testing.T) {
	table := newStreamTable(&drivertest.Null{}, false, false)
	var last atomic.Uint64
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 2000 {
				id, on := core.StreamID(last.Add(1)), new(stream)
				table.setLease(id, on)
				for back := range min(id, 40) {
					if found := table.leases.Load().find(id - back); found != nil && found.lease.Load() != uint64(id-back) {
						t.Errorf("lease %d is on the stream of %d", id-back, found.lease.Load())
					}
				}
				if found := table.leases.Load().find(id); found != on {
					t.Errorf("lease %d is on %p, want %p", id, found, on)
				}
				table.unlease(id)
				if found := table.leases.Load().find(id); found != nil {
					t.Errorf("lease %d is on %p after its end", id, found)
				}
			}
		})
	}
	workers.Wait()
	if n := len(table.leases.Load().places); n > 64 {
		t.Errorf("the table has %d places for 9 leases", n)
	}
}
