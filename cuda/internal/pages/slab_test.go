package pages

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// newSlabStore is newStore with slabs of four pages for eight pages and more.
func newSlabStore(t *testing.T, capacity, places int) (*Store, *drivertest.Faults, *device) {
	t.Helper()
	s, faults, d := newStore(t, capacity, places)
	s.SlabPages, s.SlabsFrom = 4, 8
	return s, faults, d
}

// slabs is how many slabs are mapped.
func (d *device) slabs() (n int) {
	for _, bytes := range d.sizes {
		if bytes > granule {
			n++
		}
	}
	return n
}

func TestMuchAtATimeIsMappedInSlabs(t *testing.T) {
	s, faults, d := newSlabStore(t, 32, 64)
	few := mustMap(t, s, d, 7)
	must(t, s.Unmap(few, 2*granule))
	before := faults.Calls(drivertest.MemCreate)
	many := mustMap(t, s, d, 9+2) // two of them spare
	if created := faults.Calls(drivertest.MemCreate) - before; created != 3 || d.slabs() != 2 {
		t.Errorf("%d handles are created, %d of them slabs", created, d.slabs())
	}
	check(t, s, d)
	for _, part := range [][2]uint64{{0, 1}, {0, 5}, {1, 4}, {3, 4}, {7, 2}} {
		expect.Error(t, s.Unmap(many+part[0]*granule, part[1]*granule), core.ErrDriver, "whole pages and slabs")
	}
	// A slab goes back to the device, a page stays.
	must(t, s.Unmap(many+4*granule, 5*granule))
	if s.Held() != (7+9-4)*granule || s.Spare() != granule || s.Released() != 4*granule {
		t.Errorf("%d bytes are held, %d spare, %d released", s.Held(), s.Spare(), s.Released())
	}
	check(t, s, d)
	must(t, s.Unmap(many, 4*granule), s.Close(), s.Unmap(few+2*granule, 5*granule), s.Unmap(many+9*granule, 2*granule))
	checkGone(t, s, d)
}

// A device that has no memory in a row is asked for pages.
func TestWhereThereAreNoSlabsPagesServe(t *testing.T) {
	for refused, slabs := range []int{3, 0, 1, 2} {
		s, faults, d := newSlabStore(t, 12, 16)
		if refused > 0 {
			faults.FailMethod(drivertest.MemCreate, uint64(refused), driver.OutOfMemory)
		}
		mustMap(t, s, d, 12)
		check(t, s, d)
		if d.slabs() != slabs {
			t.Errorf("%d slabs, and the device refused the %dth", d.slabs(), refused)
		}
	}
}

// Whichever call fails, the device keeps nothing of what was to be mapped, and it can be mapped then.
func TestAMapInSlabsThatFailsChangesNothing(t *testing.T) {
	for method, calls := range map[drivertest.Method]uint64{drivertest.MemCreate: 5, drivertest.MemMap: 5, drivertest.MemAccess: 1} {
		for call := uint64(1); call <= calls; call++ {
			s, faults, d := newSlabStore(t, 14, 24)
			kept := mustMap(t, s, d, 3)
			must(t, s.Unmap(kept, granule))
			faults.FailMethod(method, call, driver.Unknown)
			_, _, err := mapLowest(s, 12*granule) // one spare, two slabs, three more
			expect.Error(t, err, core.ErrDriver)
			check(t, s, d)
			if s.Held() != 3*granule || s.Spare() != granule || s.Mapped() != 2*granule {
				t.Errorf("call %d of %v: %d bytes are held, %d spare, %d mapped", call, method, s.Held(), s.Spare(), s.Mapped())
			}
			mustMap(t, s, d, 12)
		}
	}
}

// What the driver refuses to unmap or to take back is held, is nobody's, and goes with the next reap.
func TestASlabThatIsRefusedIsGivenBackLater(t *testing.T) {
	for _, method := range []drivertest.Method{drivertest.MemUnmap, drivertest.MemRelease} {
		for _, undo := range []bool{false, true} {
			s, faults, d := newSlabStore(t, 8, 16)
			var err error
			if faults.FailEvery(method, driver.Unknown); undo {
				faults.FailMethod(drivertest.MemAccess, 1, driver.Unknown)
				_, _, err = mapLowest(s, 8*granule)
			} else {
				err = s.Unmap(mustMap(t, s, d, 8), 8*granule)
			}
			expect.Error(t, err, core.ErrDriver)
			check(t, s, d)
			if s.Held() != 8*granule || s.Spare() != 0 || s.Mapped() != 0 {
				t.Errorf("%v: %d bytes are held, %d spare, %d mapped", method, s.Held(), s.Spare(), s.Mapped())
			}
			expect.Error(t, s.Reap(), core.ErrDriver)
			check(t, s, d)
			faults.Clear()
			must(t, s.Reap())
			if s.Held() != 0 {
				t.Errorf("%v: %d bytes are held after a reap", method, s.Held())
			}
			mustMap(t, s, d, 8)
		}
	}
}
