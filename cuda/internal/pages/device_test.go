package pages

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

const (
	granule = 64
	base    = 1 << 20
)

// device is a device that maps memory and does nothing else, and refuses whatever the contract
// of the seam does not allow.
type device struct {
	driver.Driver // of calls that nobody makes

	mu       sync.Mutex
	capacity int                         // in pages
	reserved uint64                      // bytes of addresses
	sizes    map[driver.MemHandle]uint64 // of handles not released
	mapped   map[uint64]driver.MemHandle // by address
	open     map[uint64]bool             // addresses that the device may touch
	places   map[driver.MemHandle]uint64 // of what is mapped
	last     driver.MemHandle
	peak     int // pages
	// overlapping: several goroutines call the store at a time. Each of them lets the others run in
	// its calls, or a busy machine runs one after the other.
	overlapping bool
	// torn is how many pages the next unmap takes down before it fails; lenient says that one of
	// pages that are not mapped does not fail. CUDA promises neither.
	torn    int
	lenient bool
	// creating, if not nil, is called while a page is created.
	creating func()
}

// newStore returns a store of pages of one granule on a device that has memory for so many.
func newStore(t testing.TB, capacity, places int) (*Store, *drivertest.Faults, *device) {
	t.Helper()
	d := &device{capacity: capacity, sizes: map[driver.MemHandle]uint64{}, mapped: map[uint64]driver.MemHandle{},
		open: map[uint64]bool{}, places: map[driver.MemHandle]uint64{}}
	faults := drivertest.NewFaults(d)
	s, err := New(faults, granule, uint64(places)*granule)
	if err != nil {
		t.Fatal(err)
	}
	return s, faults, d
}

// mapLowest maps as many whole pages at the lowest addresses where they have room.
func mapLowest(s *Store, bytes uint64) (ptr, n uint64, err error) {
	for at, room := range s.Holes {
		if room >= bytes {
			ptr = at
			break
		}
	}
	if ptr == 0 {
		return 0, 0, fmt.Errorf("%w: no addresses for %d bytes", core.ErrOutOfMemory, bytes)
	}
	_, err = s.Map(ptr, bytes)
	return ptr, bytes, err
}

// left is what the device still has of its users: pages of handles, pages that are mapped, and bytes of addresses.
func (d *device) left() (handles, mappings int, addresses uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pages(), len(d.mapped), d.reserved
}

// pages is how many pages the handles have.
func (d *device) pages() (n int) {
	for _, bytes := range d.sizes {
		n += int(bytes / granule)
	}
	return n
}

// usable reports whether the device may touch a whole range.
func (d *device) usable(ptr, bytes uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at := ptr; at < ptr+bytes; at += granule {
		if !d.open[at] {
			return false
		}
	}
	return true
}

func (d *device) Properties() (driver.Properties, error) {
	return driver.Properties{MapGranularity: granule}, nil
}

func (d *device) MemReserve(bytes uint64) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bytes == 0 || bytes%granule != 0 || d.reserved != 0 {
		return 0, driver.NewError("MemReserve", driver.InvalidValue)
	}
	d.reserved = bytes
	return base, nil
}

func (d *device) MemUnreserve(ptr, bytes uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ptr != base || bytes != d.reserved || len(d.mapped) > 0 {
		return driver.NewError("MemUnreserve", driver.InvalidValue)
	}
	d.reserved = 0
	return nil
}

// pause lets other goroutines run in the middle of a call.
func (d *device) pause() {
	if d.overlapping {
		runtime.Gosched()
	}
}

func (d *device) MemCreate(bytes uint64) (driver.MemHandle, error) {
	d.pause()
	if d.creating != nil {
		d.creating()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pages()+int(bytes/granule) > d.capacity {
		return 0, driver.NewError("MemCreate", driver.OutOfMemory)
	}
	d.last++
	d.sizes[d.last] = bytes
	d.peak = max(d.peak, d.pages())
	return d.last, nil
}

func (d *device) MemRelease(h driver.MemHandle) error {
	d.pause()
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, mapped := d.places[h]; mapped || d.sizes[h] == 0 {
		return driver.NewError("MemRelease", driver.InvalidHandle)
	}
	delete(d.sizes, h)
	return nil
}

func (d *device) MemMap(ptr, bytes uint64, h driver.MemHandle) error {
	d.pause()
	d.mu.Lock()
	defer d.mu.Unlock()
	_, mapped := d.places[h]
	for at := ptr; at < ptr+bytes; at += granule {
		mapped = mapped || d.mapped[at] != 0
	}
	if mapped || bytes == 0 || d.sizes[h] != bytes || ptr < base || ptr+bytes > base+d.reserved || (ptr-base)%granule != 0 {
		return driver.NewError("MemMap", driver.InvalidValue)
	}
	for at := ptr; at < ptr+bytes; at += granule {
		d.mapped[at] = h
	}
	d.places[h] = ptr
	return nil
}

// slab is the handle of the slab that is mapped at an address, 0 if none is.
func (d *device) slab(ptr uint64) driver.MemHandle {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.mapped[ptr]; d.sizes[h] > granule {
		return h
	}
	return 0
}

// onMapped calls f with each address of a range of whole mappings.
func (d *device) onMapped(op string, ptr, bytes uint64, f func(at uint64)) error {
	d.pause()
	d.mu.Lock()
	defer d.mu.Unlock()
	for at := ptr; at < ptr+bytes; at += granule {
		h := d.mapped[at]
		if h == 0 && (!d.lenient || op != "MemUnmap") || h != 0 && (d.places[h] < ptr || d.places[h]+d.sizes[h] > ptr+bytes) {
			return driver.NewError(op, driver.InvalidValue)
		}
	}
	for at := ptr; at < ptr+bytes; at += granule {
		f(at)
	}
	return nil
}

func (d *device) MemAccess(ptr, bytes uint64) error {
	return d.onMapped("MemAccess", ptr, bytes, func(at uint64) { d.open[at] = true })
}

func (d *device) MemUnmap(ptr, bytes uint64) error {
	torn := d.tear()
	if torn > 0 {
		bytes = uint64(torn) * granule
	}
	err := d.onMapped("MemUnmap", ptr, bytes, func(at uint64) {
		delete(d.places, d.mapped[at])
		delete(d.mapped, at)
		delete(d.open, at)
	})
	if torn > 0 {
		return driver.NewError("MemUnmap", driver.Unknown)
	}
	return err
}

func (d *device) tear() (torn int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	torn, d.torn = d.torn, 0
	return torn
}

// check demands that the books are the device's, while no call is under way.
func check(t interface {
	Helper()
	Errorf(format string, args ...any)
}, s *Store, d *device) {
	t.Helper()
	handles, mappings, _ := d.left()
	remains := 0
	for _, r := range s.remains {
		remains += len(r.handles)
	}
	down := 0
	for _, slab := range s.down {
		down += int(slab.pages)
	}
	if s.Held() != uint64(handles)*granule || s.Mapped() != uint64(mappings-remains)*granule || len(s.spare)+down != handles-mappings {
		t.Errorf("held %d, mapped %d, %d spare, %d down, %d remain; the device has %d pages, %d of them mapped", s.Held(), s.Mapped(), len(s.spare), down, remains, handles, mappings)
	}
	var st core.Stats
	s.AddTo(&st)
	// Where calls overlap the device may give a page and get another back before the store
	// enters the first.
	wrongHigh := !d.overlapping && st.ReservedHigh != uint64(d.peak)*granule
	if st.Reserved != s.Held() || st.ReservedHigh < st.Reserved || wrongHigh {
		t.Errorf("stats say %d, at most %d; held %d, at most %d", st.Reserved, st.ReservedHigh, s.Held(), d.peak*granule)
	}
	free := uint64(0)
	for i, h := range s.holes {
		if free += h.n; h.n == 0 || i > 0 && s.holes[i-1].end() >= h.first {
			t.Errorf("holes %v", s.holes)
		}
	}
	if free+uint64(mappings) != (s.end-s.base)/s.page {
		t.Errorf("%d places are free and %d mapped, of %d", free, mappings, (s.end-s.base)/s.page)
	}
}

// checkGone demands that the device is as it was before.
func checkGone(t interface {
	Helper()
	Errorf(format string, args ...any)
}, s *Store, d *device) {
	t.Helper()
	if handles, mappings, addresses := d.left(); handles+mappings > 0 || addresses > 0 || s.Held() > 0 {
		t.Errorf("left: %d handles, %d mappings, %d addresses; held %d", handles, mappings, addresses, s.Held())
	}
}
