package vmm

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func newMapper(t *testing.T, maxBytes uint64) (*Mapper, *drivertest.Faults, *sim.Device) {
	t.Helper()
	device := must.Get(sim.Open(sim.Config{}))(t)
	t.Cleanup(func() {
		expect.Success(t, device.Close())
	})
	faults := drivertest.NewFaults(device)
	return New(faults, sim.Granule, maxBytes), faults, device
}

func noRelief(uint64) error { return nil }

// Whichever call fails, and fails again while what was made is taken down: nothing is left
// when a reap has gone well, and what is counted as mapped is what the device has.
func TestNothingIsLeftOfAMappingThatFailed(t *testing.T) {
	failed := 0
	for first := uint64(1); first <= 12; first++ {
		for again := first; again <= 12; again++ {
			m, faults, device := newMapper(t, 0)
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

func TestAddressesStayReservedWithinTheLimit(t *testing.T) {
	m, _, device := newMapper(t, 2*sim.Granule)
	seen := map[uint64]bool{}
	for range 5 {
		r, err := m.Map(sim.Granule, noRelief)
		if err != nil || seen[r.Ptr] {
			t.Fatalf("%+v, %v", r, err)
		}
		seen[r.Ptr] = true
		expect.Success(t, errors.Join(m.Unmap(r), m.Reap()))
	}
	var st core.Stats
	m.AddTo(&st)
	if got := device.Books().Reservations; got != 2 || st.IsolatedAddresses != 2*sim.Granule || st.Isolated != 0 || st.IsolatedHigh != sim.Granule {
		t.Errorf("%d ranges reserved; %+v", got, st)
	}
	if err := m.Close(); err != nil || device.Books().Reservations > 0 {
		t.Errorf("closed: %v, %+v", err, device.Books())
	}
}

// Lives of random lengths, of which some go on: no address serves two of them while it is
// kept, a granule lies between neighbours of a region, what is kept stays within the limit
// but for the regions of lives that go on, and the device has few ranges.
func TestAddressesAreReservedByTheRegion(t *testing.T) {
	const limit = 2 * regionShare * sim.Granule // regions of three granules
	m, _, device := newMapper(t, limit)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var alive []Range
	used := map[uint64]bool{} // granules since their region was reserved
	for i := range 4000 {
		r, err := m.Map(1+rng.Uint64N(4*sim.Granule), noRelief)
		must.Do(t, err)
		for ptr := r.Ptr; ptr < r.Ptr+r.Bytes; ptr += sim.Granule {
			if used[ptr] {
				t.Fatalf("seed %d, life %d: %#x came again", seed, i, ptr)
			}
			used[ptr] = true
		}
		for _, other := range alive {
			at := m.regions[m.behind(r.Ptr)-1]
			if other.Ptr >= at.Ptr && other.Ptr < at.Ptr+at.Bytes && other.Ptr+other.Bytes+sim.Granule > r.Ptr {
				t.Fatalf("seed %d, life %d: %+v right behind %+v", seed, i, r, other)
			}
		}
		alive = append(alive, r)
		if len(alive) > 10 {
			at := rng.IntN(len(alive) / 2) // some live long
			expect.Success(t, m.Unmap(alive[at+len(alive)/2]))
			alive = append(alive[:at+len(alive)/2], alive[at+len(alive)/2+1:]...)
		}
		before := slices.Clone(m.regions)
		must.Do(t, m.Reap())
		for _, gone := range before {
			if !slices.Contains(m.regions, gone) {
				for ptr := gone.Ptr; ptr < gone.Ptr+gone.Bytes; ptr += sim.Granule {
					delete(used, ptr)
				}
			}
		}
		pinned := uint64(0)
		for _, r := range m.regions {
			if r.lives > 0 {
				pinned += r.kept
			}
		}
		if kept := clamp(m.addresses.Load()); kept > limit+pinned {
			t.Fatalf("seed %d, life %d: addresses of %d bytes are kept", seed, i, kept)
		}
	}
	if got := device.Books().Reservations; got != len(m.regions) {
		t.Errorf("%d ranges reserved, %d regions", got, len(m.regions))
	}
	for _, r := range alive {
		must.Do(t, m.Unmap(r))
	}
	if err := m.Close(); err != nil || device.Books().Reservations > 0 {
		t.Errorf("closed: %v, %+v", err, device.Books())
	}
}

// The simulated device has 8 times as many addresses as bytes.
func TestWhereAddressesAreFewRegionsAreSmaller(t *testing.T) {
	device := must.Get(sim.Open(sim.Config{Bytes: 16 << 20}))(t)
	m := New(device, sim.Granule, 1<<40)
	for range 200 {
		must.Do(t, m.Unmap(must.Get(m.Map(1, noRelief))(t)))
	}
	expect.Success(t, errors.Join(m.Close(), device.Close()))
}

func TestADeviceThatIsFullIsRelievedOnce(t *testing.T) {
	m, faults, _ := newMapper(t, 0)
	faults.FailMethod(drivertest.MemCreate, 1, driver.OutOfMemory)
	relieved := 0
	r, err := m.Map(1, func(uint64) error { relieved++; return nil })
	if err := errors.Join(err, m.Unmap(r), m.Close()); err != nil || relieved != 1 {
		t.Errorf("relieved %d times: %v", relieved, err)
	}
	faults.FailEvery(drivertest.MemCreate, driver.OutOfMemory)
	refused := errors.New("no relief")
	if _, err := m.Map(1, func(uint64) error { return refused }); !errors.Is(err, core.ErrOutOfMemory) ||
		!errors.Is(err, refused) {
		t.Errorf("mapped: %v", err)
	}
	expect.ErrorOf(m.Map(^uint64(0), noRelief))(t, core.ErrOutOfMemory, "mapped")
}
