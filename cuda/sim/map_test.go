package sim

import (
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// mapped reserves, creates and maps n granules, and releases the handle.
func (p *program) mapped(n uint64) (ptr, size uint64) {
	p.Helper()
	size = n * Granule
	ptr, err := p.d.MemReserve(size)
	must(p, err)
	h, err := p.d.MemCreate(size)
	must(p, err)
	must(p, p.d.MemMap(ptr, size, h))
	must(p, p.d.MemAccess(ptr, size))
	must(p, p.d.MemRelease(h))
	return ptr, size
}

func TestAnAccessOfUnmappedMemoryFaultsAndNamesWhatWasThere(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		ptr, size := p.mapped(2)
		p.launch("write", ptr, size, s)
		must(t, d.StreamSynchronize(s))
		must(t, d.MemUnmap(ptr, size))
		wantCode(t, d.MemsetAsync(ptr, 0, 16, s), driver.InvalidValue) // a call that names it is told
		p.launch("read", ptr+100, 8, s)
		wantCode(t, d.StreamSynchronize(s), driver.IllegalAddress)
		f := d.Findings()
		if len(f) != 1 || f[0].Kind != IllegalAddress || f[0].BlockPtr != ptr || f[0].BlockBytes != size || f[0].Other.Op != "unmap" {
			t.Fatalf("findings: %+v", f)
		}
		if !strings.Contains(f[0].Text, "gone since unmap") {
			t.Errorf("the text is %q", f[0].Text)
		}
		wantLost(t, d, s, driver.IllegalAddress)
	})
}

func TestAnUnmapWaitsForNothing(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		ptr, size := p.mapped(1)
		release := p.hold(s)
		p.launch("write", ptr, size, s)
		must(t, d.MemUnmap(ptr, size))
		release()
		wantCode(t, d.StreamSynchronize(s), driver.IllegalAddress)
	})
}

func TestAnUnmapBehindNothingTheHostKnowsIsARaceWithWhatRan(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		ptr, size := p.mapped(1)
		p.launch("write", ptr, size, s)
		for d.Books().QueuedOps > 0 { // it has run, which nobody has asked for
			_, _ = d.StreamQuery(0)
		}
		must(t, d.MemUnmap(ptr, size))
		p.wantFinding(FreeRace)
	})
}

func TestReservedAddressesAreNoMemory(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		ptr, err := d.MemReserve(Granule)
		must(t, err)
		h, err := d.MemCreate(Granule)
		must(t, err)
		must(t, d.MemMap(ptr, Granule, h)) // without access
		wantCode(t, d.MemsetAsync(ptr, 0, 16, s), driver.InvalidValue)
		p.launch("wild", ptr, 1, s)
		wantCode(t, d.StreamSynchronize(s), driver.IllegalAddress)
		if f := d.Findings(); len(f) != 1 || f[0].Kind != IllegalAddress || f[0].BlockPtr != 0 {
			t.Errorf("findings: %v", f)
		}
	})
}

func TestMappedMemoryCountsAgainstTheDevice(t *testing.T) {
	d := open(t, FreeRunning()) // of 256 MiB
	p := newProgram(t, d)
	free := func() uint64 {
		n, _, err := d.MemInfo()
		must(t, err)
		return n
	}
	whole := free()
	ptr, size := p.mapped(100)
	if got := free(); got != whole-size {
		t.Errorf("%d bytes are free beside a mapping of %d", got, size)
	}
	_, err := d.MemCreate(whole)
	wantCode(t, err, driver.OutOfMemory)
	_, err = d.MemAlloc(whole)
	wantCode(t, err, driver.OutOfMemory)
	b := d.Books()
	if b.Mappings != 1 || b.MappedBytes != size || b.Reservations != 1 || b.Handles != 0 || b.LiveBlocks != 0 {
		t.Errorf("books: %+v", b)
	}
	must(t, d.MemUnmap(ptr, size))
	if got := free(); got != whole {
		t.Errorf("%d bytes are free behind the unmap, want %d", got, whole)
	}
	must(t, d.MemUnreserve(ptr, size))
	if b := d.Books(); b != (Books{Modules: 1}) {
		t.Errorf("left over: %+v", b)
	}
	d.OutOfMemoryAt(1)
	_, err = d.MemCreate(Granule)
	wantCode(t, err, driver.OutOfMemory)
}

func TestAddressesComeAgainOnlyWhenThereAreNoOthers(t *testing.T) {
	d := open(t, FreeRunning())
	const size = 256 << 20 / 2
	seen := map[uint64]bool{}
	var list []uint64
	for range 2 * mapFactor {
		ptr, err := d.MemReserve(size)
		must(t, err)
		if seen[ptr] {
			t.Fatalf("%#x was reserved twice", ptr)
		}
		seen[ptr] = true
		list = append(list, ptr)
	}
	_, err := d.MemReserve(Granule)
	wantCode(t, err, driver.OutOfMemory)
	must(t, d.MemUnreserve(list[3], size))
	again, err := d.MemReserve(size)
	must(t, err)
	if again != list[3] {
		t.Errorf("got %#x, want the hole at %#x", again, list[3])
	}
}

func TestMappingsRefuseWhatTheyAreNot(t *testing.T) {
	d := open(t, FreeRunning())
	p := newProgram(t, d)
	ptr, size := p.mapped(2)
	h, err := d.MemCreate(Granule)
	must(t, err)
	wantCode(t, d.MemUnmap(ptr, Granule), driver.InvalidValue)
	wantCode(t, d.MemUnmap(ptr+Granule, Granule), driver.InvalidValue)
	wantCode(t, d.MemAccess(ptr, Granule), driver.InvalidValue)
	wantCode(t, d.MemUnreserve(ptr, size), driver.InvalidValue) // mapped
	wantCode(t, d.MemFreeAsync(ptr, 0), driver.InvalidValue)
	wantCode(t, d.MemFree(ptr), driver.InvalidValue)
	wantCode(t, d.MemMap(ptr, size, h), driver.InvalidValue)
	other, err := d.MemReserve(size)
	must(t, err)
	wantCode(t, d.MemMap(other, size, h), driver.InvalidValue) // shorter
	wantCode(t, d.MemMap(other, size, 77), driver.InvalidHandle)
	wantCode(t, d.MemRelease(77), driver.InvalidHandle)
	must(t, d.MemUnreserve(other, size))
	three, err := d.MemReserve(3 * Granule)
	must(t, err)
	wantCode(t, d.MemMap(three+Granule/2, Granule, h), driver.InvalidValue)
	wantCode(t, d.MemMap(three+3*Granule, Granule, h), driver.InvalidValue)
	must(t, d.MemMap(three+Granule, Granule, h))
	wantCode(t, d.MemMap(three, Granule, h), driver.InvalidValue) // at two places at a time
	wide, err := d.MemCreate(2 * Granule)
	must(t, err)
	wantCode(t, d.MemMap(three, 2*Granule, wide), driver.InvalidValue) // over the other
	wantCode(t, d.MemMap(three+Granule, 2*Granule, wide), driver.InvalidValue)
	wantCode(t, d.MemAccess(three, 2*Granule), driver.InvalidValue) // half of it is not mapped
	wantCode(t, d.MemUnmap(three, 2*Granule), driver.InvalidValue)
	wantCode(t, d.MemUnmap(three+Granule, 0), driver.InvalidValue)
	wantCode(t, d.MemUnreserve(three, 3*Granule), driver.InvalidValue)
	must(t, d.MemUnmap(three+Granule, Granule))
	wantCode(t, d.MemUnreserve(three, 2*Granule), driver.InvalidValue)
	must(t, d.MemUnreserve(three, 3*Granule))
}

// Neither call reaches from one reserved range into the next.
func TestWhatIsMappedOfTwoReservationsIsNotTakenTogether(t *testing.T) {
	d := open(t, FreeRunning())
	p := newProgram(t, d)
	first, size := p.mapped(1)
	if second, _ := p.mapped(1); second != first+size {
		t.Fatalf("%#x and %#x are not side by side: the test shows nothing", first, second)
	}
	wantCode(t, d.MemAccess(first, 2*size), driver.InvalidValue)
	wantCode(t, d.MemUnmap(first, 2*size), driver.InvalidValue)
}

// CUDA need not notice it; a simulated device is there to notice.
func TestWhatIsNotMappedIsNotUnmapped(t *testing.T) {
	d := open(t, FreeRunning())
	p := newProgram(t, d)
	reserved, err := d.MemReserve(Granule)
	must(t, err)
	wantCode(t, d.MemUnmap(reserved, Granule), driver.InvalidValue) // never mapped
	must(t, d.MemUnreserve(reserved, Granule))
	ptr, size := p.mapped(2)
	must(t, d.MemUnmap(ptr, size))
	wantCode(t, d.MemUnmap(ptr, size), driver.InvalidValue) // a second time
	must(t, d.MemUnreserve(ptr, size))
	wantCode(t, d.MemUnmap(ptr, size), driver.InvalidValue) // not even reserved
}

func TestManyMappingsAtOnceKeepTheirBooks(t *testing.T) {
	d := open(t, FreeRunning())
	p := newProgram(t, d)
	var group sync.WaitGroup
	begin := make(chan struct{})
	for range 8 {
		s := p.stream()
		group.Go(func() {
			<-begin
			for range 20 {
				ptr, size := p.mapped(3)
				must(t, d.MemsetAsync(ptr+size-8192, 1, 8192, s))
				must(t, d.StreamSynchronize(s))
				must(t, d.MemUnmap(ptr, size))
				must(t, d.MemUnreserve(ptr, size))
			}
		})
	}
	close(begin)
	group.Wait()
	p.wantClean()
	if b := d.Books(); b != (Books{Streams: 8, Modules: 1}) {
		t.Errorf("left over: %+v", b)
	}
}
