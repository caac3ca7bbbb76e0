package vmm

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func newMapper(t *testing.T, maxBytes uint64, maxRanges int) (*Mapper, *drivertest.Faults, *sim.Device) {
	t.Helper()
	device := must.Get(sim.Open(sim.Config{}))(t)
	t.Cleanup(func() {
		expect.Success(t, device.Close())
	})
	faults := drivertest.NewFaults(device)
	return New(faults, sim.Granule, maxBytes, maxRanges), faults, device
}

func noRelief() error { return nil }

// Whichever call fails, and fails again while what was made is taken down: nothing is left
// when a reap has gone well, and what is counted as mapped is what the device has.
func TestNothingIsLeftOfAMappingThatFailed(t *testing.T) {
	failed := 0
	for first := uint64(1); first <= 12; first++ {
		for again := first; again <= 12; again++ {
			m, faults, device := newMapper(t, 0, 0)
			faults.FailCall(first, driver.Unknown)
			faults.FailCall(again, driver.Unknown)
			r, err := m.Map(100, noRelief)
			if err == nil {
				err = m.Unmap(r)
			}
			if err != nil {
				failed++
			}
			books := device.Books()
			if m.Mapped() != uint64(max(books.Handles, books.Mappings))*sim.Granule {
				t.Errorf("calls %d and %d: %d bytes are mapped, the device has %+v", first, again, m.Mapped(), books)
			}
			faults.Clear()
			if m.Mapped() > 0 && !m.Leftover() { // the unmap failed
				err = m.Unmap(r)
			} else {
				err = m.Reap()
			}
			expect.Success(t, errors.Join(err, m.Close()))
			if books := device.Books(); books.Handles+books.Mappings+books.Reservations > 0 || m.Mapped() > 0 || m.Leftover() {
				t.Errorf("calls %d and %d: left %+v, %d bytes mapped", first, again, books, m.Mapped())
			}
		}
	}
	if failed < 40 {
		t.Errorf("only %d mappings failed", failed)
	}
}

func TestAddressesStayReservedWithinTheLimits(t *testing.T) {
	for name, m := range map[string]struct {
		bytes  uint64
		ranges int
	}{"bytes": {2 * sim.Granule, 100}, "ranges": {1 << 40, 2}} {
		mapper, _, device := newMapper(t, m.bytes, m.ranges)
		seen := map[uint64]bool{}
		for range 5 {
			r, err := mapper.Map(sim.Granule, noRelief)
			if err != nil || seen[r.Ptr] {
				t.Fatalf("%s: %+v, %v", name, r, err)
			}
			seen[r.Ptr] = true
			expect.Success(t, errors.Join(mapper.Unmap(r), mapper.Reap()))
		}
		var st core.Stats
		mapper.AddTo(&st)
		if got := device.Books().Reservations; got != 2 || st.IsolatedAddresses != 2*sim.Granule || st.Isolated != 0 || st.IsolatedHigh != sim.Granule {
			t.Errorf("%s: %d ranges reserved; %+v", name, got, st)
		}
		if err := mapper.Close(); err != nil || device.Books().Reservations > 0 {
			t.Errorf("%s: closed: %v, %+v", name, err, device.Books())
		}
	}
}

func TestADeviceThatIsFullIsRelievedOnce(t *testing.T) {
	m, faults, _ := newMapper(t, 0, 0)
	faults.FailMethod(drivertest.MemCreate, 1, driver.OutOfMemory)
	relieved := 0
	r, err := m.Map(1, func() error { relieved++; return nil })
	if err := errors.Join(err, m.Unmap(r), m.Close()); err != nil || relieved != 1 {
		t.Errorf("relieved %d times: %v", relieved, err)
	}
	faults.FailEvery(drivertest.MemCreate, driver.OutOfMemory)
	refused := errors.New("no relief")
	if _, err := m.Map(1, func() error { return refused }); !errors.Is(err, core.ErrOutOfMemory) || !errors.Is(err, refused) {
		t.Errorf("mapped: %v", err)
	}
	expect.ErrorOf(m.Map(^uint64(0), noRelief))(t, core.ErrOutOfMemory, "mapped")
}
