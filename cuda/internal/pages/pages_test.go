package pages

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// mustMap maps pages and demands that the device may touch them.
func mustMap(t testing.TB, s *Store, d *device, pages uint64) uint64 {
	t.Helper()
	ptr, n, err := mapLowest(s, pages*granule)
	if err != nil || n != pages*granule || !d.usable(ptr, n) {
		t.Fatalf("mapped %d bytes at %#x: %v", n, ptr, err)
	}
	return ptr
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestPagesMoveToOtherAddresses(t *testing.T) {
	s, faults, d := newStore(t, 4, 8)
	a := mustMap(t, s, d, 1)
	b := mustMap(t, s, d, 1)
	c := mustMap(t, s, d, 1)
	if a != base || b != a+granule || c != b+granule {
		t.Errorf("mapped at %#x, %#x, %#x", a, b, c)
	}
	must(t, s.Unmap(a, granule), s.Unmap(c, granule))
	accesses := faults.Calls(drivertest.MemAccess)
	if at := mustMap(t, s, d, 3); at != c || faults.Calls(drivertest.MemCreate) != 4 || faults.Calls(drivertest.MemAccess) != accesses+1 {
		t.Errorf("mapped at %#x with %d pages created:\n%s", at, faults.Calls(drivertest.MemCreate), faults.Coverage())
	}
	check(t, s, d)
	// What was mapped by several calls is unmapped by one.
	must(t, s.Unmap(b, 4*granule))
	check(t, s, d)
	must(t, s.Release(3*granule-1))
	if s.Held() != 2*granule {
		t.Errorf("%d bytes are held", s.Held())
	}
	must(t, s.Close())
	checkGone(t, s, d)
}

func TestWantIsSaidToBeOfMemoryOrLimit(t *testing.T) {
	s, _, d := newStore(t, 4, 8)
	a := mustMap(t, s, d, 1)
	mustMap(t, s, d, 1)
	must(t, s.Unmap(a, granule))
	refuse := func(pages uint64, says string) {
		t.Helper()
		_, _, err := mapLowest(s, pages*granule)
		var byDriver *core.DriverError
		if !errors.Is(err, core.ErrOutOfMemory) || errors.As(err, &byDriver) != (says == "") {
			t.Errorf("%v", err)
		}
		check(t, s, d)
	}
	refuse(4, "")
	s.SetLimit(3*granule + granule/2)
	refuse(3, "limit")
	mustMap(t, s, d, 2)
	s.SetLimit(1)
	refuse(1, "limit")
	s.SetLimit(0)
	mustMap(t, s, d, 1)
	refuse(1, "")
}

// A limit that is lowered while the device is asked for pages sends them back.
func TestALimitCoversPagesThatAreOnTheirWay(t *testing.T) {
	for _, share := range []bool{false, true} {
		for lowered := range uint64(4) {
			s, _, d := newStore(t, 8, 8)
			most := uint64(8 * granule)
			if share {
				s.Share = func() uint64 { return most }
			}
			mustMap(t, s, d, 1)
			d.creating = func() {
				if most = (lowered + 1) * granule; !share {
					s.SetLimit(most)
				}
			}
			_, _, err := mapLowest(s, 3*granule)
			if lowered == 3 {
				if err != nil || s.Held() != 4*granule {
					t.Errorf("the limit is not below it: %v, %d bytes are held", err, s.Held())
				}
			} else if !IsOverLimit(err) || s.Held() != granule || s.Mapped() != granule {
				t.Errorf("a limit of %d pages: %v, %d bytes are held, %d mapped", lowered+1, err, s.Held(), s.Mapped())
			}
			check(t, s, d)
		}
	}
}

// What is reserved is no hole for others, and is one again if it cannot be filled.
func TestWhatIsReservedIsNoHole(t *testing.T) {
	s, faults, d := newStore(t, 8, 4)
	fill, err := s.Reserve(base, 3*granule)
	must(t, err)
	for ptr, bytes := range s.Holes {
		if ptr != base+3*granule || bytes != granule {
			t.Errorf("%d bytes at %#x are a hole", bytes, ptr)
		}
	}
	_, err = s.Map(base+2*granule, granule)
	if wrong, ok := errors.AsType[*core.DriverError](err); !ok || wrong.Code != driver.InvalidValue {
		t.Errorf("mapped where it is reserved: %v", err)
	}
	faults.FailMethod(drivertest.MemMap, 2, driver.OutOfMemory)
	_, err = fill()
	expect.Error(t, err, core.ErrOutOfMemory)
	check(t, s, d)
	mustMap(t, s, d, 4)
}

func TestPagesAreMappedOnlyInAHole(t *testing.T) {
	s, faults, d := newStore(t, 8, 8)
	for _, at := range []struct{ place, pages uint64 }{{2, 2}, {5, 3}, {0, 1}} {
		if created, err := s.Map(base+at.place*granule, at.pages*granule); created != at.pages*granule || err != nil {
			t.Fatalf("%d pages at %d: %d bytes are created, %v", at.pages, at.place, created, err)
		}
	}
	for _, at := range []struct{ ptr, bytes uint64 }{{base, granule}, {base + granule, 2 * granule}, {base + 4*granule, 2 * granule}, {base + granule, 0},
		{base + granule, granule / 2}, {base + granule + 1, granule}, {base + 8*granule, granule}, {base - granule, granule}, {base + granule, math.MaxUint64 - granule + 1}} {
		var wrong *core.DriverError
		if _, err := s.Map(at.ptr, at.bytes); !errors.As(err, &wrong) || wrong.Code != driver.InvalidValue {
			t.Errorf("%d bytes at %#x: %v", at.bytes, at.ptr, err)
		}
	}
	var holes []uint64
	for ptr, bytes := range s.Holes {
		holes = append(holes, (ptr-base)/granule, bytes/granule)
	}
	if !slices.Equal(holes, []uint64{1, 1, 4, 1}) || faults.Calls(drivertest.MemCreate) != 6 {
		t.Errorf("holes %v\n%s", holes, faults.Coverage())
	}
	for ptr := range s.Holes {
		if ptr != base+granule {
			t.Errorf("the first hole is at %#x", ptr)
		}
		break
	}
	check(t, s, d)
}

func TestOnlyWholePagesThatAreMappedAreUnmapped(t *testing.T) {
	s, faults, d := newStore(t, 8, 8)
	ptr := mustMap(t, s, d, 3)
	for _, at := range []struct{ ptr, bytes uint64 }{{ptr, 0}, {ptr, 1}, {ptr + 1, granule}, {ptr, 4 * granule}, {ptr - granule, granule}, {ptr, 9 * granule}, {ptr + 8*granule, granule}, {ptr, math.MaxUint64 - granule + 1}, {0, granule}} {
		var wrong *core.DriverError
		if err := s.Unmap(at.ptr, at.bytes); !errors.As(err, &wrong) || wrong.Code != driver.InvalidValue {
			t.Errorf("%d bytes at %#x: %v", at.bytes, at.ptr, err)
		}
	}
	must(t, s.Unmap(ptr+granule, granule))
	if err := s.Unmap(ptr, 3*granule); err == nil {
		t.Error("unmapped a range with a hole")
	}
	if faults.Calls(drivertest.MemUnmap) != 1 {
		t.Error(faults.Coverage())
	}
	check(t, s, d)
}

func TestWhatIsMappedAtTheCloseStaysUntilItIsUnmapped(t *testing.T) {
	s, _, d := newStore(t, 8, 8)
	a := mustMap(t, s, d, 2)
	b := mustMap(t, s, d, 2)
	must(t, s.Unmap(b, 2*granule), s.Close())
	if _, _, err := mapLowest(s, granule); !errors.Is(err, core.ErrClosed) {
		t.Errorf("mapped: %v", err)
	}
	if handles, _, addresses := d.left(); handles != 2 || addresses == 0 || !d.usable(a, 2*granule) {
		t.Errorf("%d handles and %d addresses are left", handles, addresses)
	}
	must(t, s.Unmap(a, granule))
	check(t, s, d)
	must(t, s.Unmap(a+granule, granule))
	checkGone(t, s, d)
	must(t, s.Close(), s.Reap())
}

func TestAddressesThatAreNotTakenBackAreGivenBackAgain(t *testing.T) {
	s, faults, d := newStore(t, 8, 8)
	ptr := mustMap(t, s, d, 1)
	must(t, s.Unmap(ptr, granule))
	faults.FailMethod(drivertest.MemUnreserve, 1, driver.Unknown)
	if err := s.Close(); !errors.Is(err, core.ErrDriver) || errors.Is(err, core.ErrSticky) {
		t.Error(err)
	}
	must(t, s.Close())
	checkGone(t, s, d)
}

func TestSizesAreMultiplesOfTheGranularity(t *testing.T) {
	for _, size := range [][2]uint64{{0, granule}, {granule / 2, granule}, {granule, 0}, {2 * granule, 3 * granule}} {
		d := &device{}
		if _, err := New(d, size[0], size[1]); !errors.Is(err, core.ErrDriver) || d.reserved > 0 {
			t.Errorf("%d bytes of addresses for pages of %d: %v", size[1], size[0], err)
		}
	}
	s, err := New(drivertest.NewFaults(&device{}), granule, granule)
	must(t, err, s.Close())
	faults := drivertest.NewFaults(&device{})
	for _, method := range []drivertest.Method{drivertest.Properties, drivertest.MemReserve} {
		faults.FailMethod(method, 1, driver.Unknown)
		if _, err := New(faults, granule, granule); !errors.Is(err, core.ErrDriver) {
			t.Error(err)
		}
	}
}

// Whichever calls fail: nothing is lost, and what is held is what the device has given.
func TestNothingIsLostWhateverFails(t *testing.T) {
	failed := 0
	for first := uint64(1); first <= 24; first++ {
		for again := first; again <= 28; again++ {
			s, faults, d := newStore(t, 8, 8)
			a := mustMap(t, s, d, 2)
			b := mustMap(t, s, d, 1)
			must(t, s.Unmap(a, 2*granule))
			faults.FailCall(first, driver.Unknown)
			faults.FailCall(again, driver.Unknown)
			ptr, n, err := mapLowest(s, 4*granule) // two of them spare
			check(t, s, d)
			if err == nil {
				err = s.Unmap(ptr, n)
				check(t, s, d)
			}
			if err == nil {
				err = s.Release(2 * granule)
				check(t, s, d)
			}
			if err != nil {
				failed++
			}
			err = s.Close()
			faults.Clear()
			must(t, s.Unmap(b, granule), s.Reap())
			checkGone(t, s, d)
			if t.Failed() {
				t.Fatalf("calls %d and %d; closed: %v", first, again, err)
			}
		}
	}
	if failed < 100 {
		t.Errorf("only %d failed", failed)
	}
}

// Who unmaps several pages and is told of an error does not know which are still mapped. So
// nobody gets them until they certainly are not.
func TestPagesOfATornUnmapAreUsedAgainOnlyWhenTheyAreUnmapped(t *testing.T) {
	for _, lenient := range []bool{true, false} {
		s, _, d := newStore(t, 4, 8)
		ptr := mustMap(t, s, d, 4)
		d.torn, d.lenient = 2, lenient
		expect.Error(t, s.Unmap(ptr, 4*granule), core.ErrDriver, "unmapped")
		if _, _, err := mapLowest(s, granule); !errors.Is(err, core.ErrOutOfMemory) || s.Held() != 4*granule || s.Mapped() != 0 {
			t.Errorf("mapped: %v; %d held, %d mapped", err, s.Held(), s.Mapped())
		}
		if err := s.Reap(); (err == nil) != lenient {
			t.Errorf("reaped: %v", err)
		}
		want := ptr
		if !lenient { // of the two pages that are not mapped
			want += 2 * granule
		}
		if at := mustMap(t, s, d, 2); at != want {
			t.Errorf("mapped at %#x, not %#x", at, want)
		}
	}
}

func TestALostDeviceIsNotCalled(t *testing.T) {
	s, faults, d := newStore(t, 8, 8)
	ptr := mustMap(t, s, d, 2)
	must(t, s.Unmap(ptr, granule))
	faults.FailMethod(drivertest.MemMap, 2, driver.IllegalAddress)
	_, _, err := mapLowest(s, 2*granule)
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("a loss is told more than once: %v", err)
	}
	calls := faults.Total()
	_, _, again := mapLowest(s, granule)
	for i, err := range []error{err, again, s.Unmap(ptr+granule, granule), s.Release(0), s.Close(), s.Reap()} {
		if !errors.Is(err, core.ErrSticky) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if faults.Total() != calls {
		t.Errorf("%d calls of a lost device", faults.Total()-calls)
	}
	check(t, s, d)
}
