package pages

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// The simulated device agrees with the one that most of these tests use: it is used
// through pages at new addresses, has nothing to report, and is empty at the end.
func TestTheSimulatedDeviceCanBeUsedThroughPagesThatMoved(t *testing.T) {
	d, err := sim.Open(sim.Config{OnFinding: func(f sim.Finding) { t.Errorf("found: %v", f) }})
	must(t, err)
	s, err := New(d, sim.Granule, 64*sim.Granule)
	must(t, err)
	stream, err := d.StreamCreate()
	must(t, err)
	use := func(ptr, n uint64) {
		t.Helper()
		got := make([]byte, n)
		must(t, d.MemsetAsync(ptr, 7, n, stream), d.CopyToHostAsync(got, ptr, stream), d.StreamSynchronize(stream))
		for _, b := range got {
			if b != 7 {
				t.Fatalf("read %d", b)
			}
		}
	}
	a, n, err := mapLowest(s, 4*sim.Granule)
	must(t, err)
	use(a, n)
	must(t, s.Unmap(a+sim.Granule, sim.Granule), s.Unmap(a+3*sim.Granule, sim.Granule))
	b, n, err := mapLowest(s, 3*sim.Granule)
	must(t, err)
	use(b, n)
	if books := d.Books(); books.Handles != 5 || books.MappedBytes != s.Mapped() || books.Reserved != s.Held() || b != a+3*sim.Granule {
		t.Errorf("%+v; %d mapped, %d held, at %#x and %#x", books, s.Mapped(), s.Held(), a, b)
	}
	must(t, s.Unmap(a+2*sim.Granule, 4*sim.Granule), s.Unmap(a, sim.Granule), s.Close(), d.StreamDestroy(stream))
	if books := d.Books(); books.Handles+books.Mappings+books.Reservations > 0 || books.Reserved > 0 {
		t.Errorf("left: %+v", books)
	}
	must(t, d.Close())
}
