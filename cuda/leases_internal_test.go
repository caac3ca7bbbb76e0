package cuda

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost-gpu/fencepost/core"
)

// The table of the leases answers as a map does, for ids that meet in it too.
func TestLeasesAreAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, got := map[core.StreamID]*stream{}, noLeases()
		id := rapid.OneOf(rapid.Uint64Range(0, 9), rapid.SampledFrom([]uint64{16, 32, 64, 1 << 40, 1<<64 - 1}))
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			of := core.StreamID(id.Draw(t, "id"))
			delete(want, of)
			var on *stream
			if rapid.Bool().Draw(t, "leased") {
				on = new(stream)
				want[of] = on
			}
			got = got.changed(of, on)
			if all := maps.Collect(got.each); !maps.Equal(all, want) {
				t.Fatalf("got %v, want %v", all, want)
			}
			for asked := range core.StreamID(66) {
				if got.find(asked) != want[asked] {
					t.Fatalf("lease %d is on %p, want %p", asked, got.find(asked), want[asked])
				}
			}
		}
	})
}
