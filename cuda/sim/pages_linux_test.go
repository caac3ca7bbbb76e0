package sim

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// strict does by protection what Windows does by committing: memory that was
// not committed, or was given back, faults.
var strict = pages{
	reserve: func(bytes uint64) ([]byte, error) {
		return unix.Mmap(-1, 0, int(bytes), unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	},
	commit: func(part []byte) error { return unix.Mprotect(part, unix.PROT_READ|unix.PROT_WRITE) },
	giveBack: func(part []byte) {
		_ = unix.Madvise(part, unix.MADV_DONTNEED)
		_ = unix.Mprotect(part, unix.PROT_NONE)
	},
	release: unix.Munmap,
	revokes: true,
}

// withPages makes devices take their memory by other means while a test runs.
func withPages(t *testing.T, other pages) {
	t.Helper()
	own := system
	system = other
	t.Cleanup(func() { system = own })
}

// underAllPages runs a test with the system's pages and with strict ones.
func underAllPages(t *testing.T, test func(t *testing.T, revokes bool)) {
	for name, p := range map[string]pages{"system": system, "strict": strict} {
		t.Run(name, func(t *testing.T) {
			withPages(t, p)
			test(t, p.revokes)
		})
	}
}

// Whatever touches memory that is not committed ends the process or the context.
func TestNothingTouchesMemoryThatIsNotCommitted(t *testing.T) {
	withPages(t, strict)
	t.Run("conformance", func(t *testing.T) {
		under := schedules
		if testing.Short() {
			under = schedules[2:] // the others are TestConformance's
		}
		conforms(t, under)
	})
	t.Run("model", TestAllocatorAgainstModel)
}

func TestMemoryThatWasGivenBackReadsAsZero(t *testing.T) {
	underAllPages(t, func(t *testing.T, _ bool) {
		a, err := newArena(deviceBase, 4*Granule, unit)
		must(t, err)
		defer func() { must(t, a.close()) }()
		zero := make([]byte, Granule)
		for range 3 {
			must(t, a.setMapped(a.base+Granule, Granule))
			granule := a.bytes(a.base+Granule, Granule)
			if !bytes.Equal(granule, zero) {
				t.Fatal("a granule does not read as zero at first")
			}
			fill(granule, 0xab)
			a.unmap(a.base+Granule, Granule)
		}
	})
}

// The kernel has its slice when the memory goes: nothing orders the two.
func TestMemoryThatIsTakenFromUnderAKernelEndsNoProcess(t *testing.T) {
	underAllPages(t, func(t *testing.T, revokes bool) {
		d := open(t, FreeRunning())
		p := newProgram(t, d)
		s := p.stream()
		ptr, size := p.mapped(2)
		reached, taken := make(chan struct{}), make(chan struct{})
		must(t, d.RegisterModule("slow", Kernel{Name: "slow", Run: func(x *Exec) {
			b := x.Write(ptr, size)
			close(reached)
			<-taken
			clear(b)
		}}))
		m, err := d.ModuleLoad(driver.Image{Name: "slow"})
		must(t, err)
		f, err := d.ModuleFunction(m, "slow")
		must(t, err)
		must(t, d.Launch(&driver.Launch{Function: f, Stream: s}))
		<-reached
		must(t, d.MemUnmap(ptr, size))
		close(taken)
		err = d.StreamSynchronize(s)
		if !revokes {
			must(t, err)
			return
		}
		wantCode(t, err, driver.IllegalAddress)
		found := d.Findings()
		if len(found) == 0 || found[0].Kind != IllegalAddress || found[0].First.Ptr != ptr || found[0].BlockPtr != ptr || found[0].Other.Op != "unmap" {
			t.Errorf("findings: %+v", found)
		}
	})
}

func TestACopyWhoseMemoryIsTakenIsAnIllegalAddress(t *testing.T) {
	withPages(t, strict)
	for name, copyOf := range map[string]func(d *Device, ptr uint64, s driver.Stream) error{
		"fill": func(d *Device, ptr uint64, s driver.Stream) error { return d.MemsetAsync(ptr, 1, Granule, s) },
		"to device": func(d *Device, ptr uint64, s driver.Stream) error {
			return d.CopyToDeviceAsync(ptr, make([]byte, 64), s)
		},
		"to host": func(d *Device, ptr uint64, s driver.Stream) error { return d.CopyToHostAsync(make([]byte, 64), ptr, s) },
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, FreeRunning())
			p := newProgram(t, d)
			s := p.stream()
			ptr, size := p.mapped(1)
			release := p.hold(s)
			must(t, copyOf(d, ptr, s))
			// The device's own look at the map comes before the pages go.
			d.mapped.Load().arena.pages.giveBack(d.mapped.Load().arena.bytes(ptr, size))
			release()
			wantCode(t, d.StreamSynchronize(s), driver.IllegalAddress)
			if f := d.Findings(); len(f) != 1 || f[0].Kind != IllegalAddress || f[0].First.Ptr != ptr {
				t.Errorf("findings: %+v", f)
			}
		})
	}
}

func TestAFaultThatIsNotTheDevicesIsNotTaken(t *testing.T) {
	withPages(t, strict)
	d := open(t, Seeded(1)) // runs on this goroutine
	foreign, err := strict.reserve(Granule)
	must(t, err)
	defer func() {
		must(t, strict.release(foreign))
		if recover() == nil {
			t.Error("the fault was swallowed")
		}
	}()
	d.runRevocable(&op{kind: opToHost, hostBytes: foreign, exec: Exec{touches: []Range{Reads(newProgram(t, d).alloc(64, 0), 8)}}})
}

func TestAMachineWithoutMemoryIsADeviceWithout(t *testing.T) {
	full := errors.New("the paging file is too small")
	scarce := strict
	left := 3 // the indexes of two arenas and one granule
	scarce.commit = func(part []byte) error {
		if left--; left < 0 {
			return full
		}
		return strict.commit(part)
	}
	withPages(t, scarce)
	d := open(t, FreeRunning())
	p := newProgram(t, d)
	p.alloc(64, 0)
	free, _, err := d.MemInfo()
	must(t, err)
	_, err = d.MemAllocAsync(4*Granule, 0, 0)
	wantCode(t, err, driver.OutOfMemory)
	if !strings.Contains(err.Error(), full.Error()) {
		t.Errorf("the error does not say what the machine said: %v", err)
	}
	if after, _, _ := d.MemInfo(); after != free {
		t.Errorf("%d bytes are free behind a refusal, %d before", after, free)
	}
	left = 1 << 20
	p.alloc(4*Granule, 0)

	left = 0
	if d, err := Open(Config{Bytes: Granule}); !errors.Is(err, full) {
		t.Errorf("Open: %v, %v", d, err)
	}
}

// resident is how many of the machine's pages a part takes.
func resident(t *testing.T, part []byte) (pages int) {
	t.Helper()
	vec := make([]byte, (len(part)+unix.Getpagesize()-1)/unix.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(part))), uintptr(len(part)), uintptr(unsafe.Pointer(unsafe.SliceData(vec))))
	if errno != 0 {
		t.Fatal(errno)
	}
	for _, v := range vec {
		pages += int(v & 1)
	}
	return pages
}

// A page that was mapped elsewhere before is scrambled where it is touched:
// tables of columns that are moved about and not read take no memory.
func TestMemoryThatIsMappedAgainTakesNoneUntilItIsTouched(t *testing.T) {
	d := open(t, FreeRunning())
	b := newBook(t, d, 8, 4)
	s := b.stream()
	must(t, d.MemsetAsync(b.at, 0x77, 4*Granule, s))
	must(t, d.StreamSynchronize(s))
	b.unmap(0, 4)
	for i := range uint64(4) {
		b.move(i, 4+i)
	}
	must(t, d.MemAccess(b.place(4), 4*Granule)) // once more, of what has it
	part := d.mapped.Load().arena.bytes(b.place(4), 4*Granule)
	if n := resident(t, part); n != 0 {
		t.Errorf("%d pages are resident before anything was touched", n)
	}
	must(t, d.MemsetAsync(b.place(5)-100, 1, 200, s)) // over a bound
	must(t, d.StreamSynchronize(s))
	if n := resident(t, part[2*Granule:]); n != 0 {
		t.Errorf("%d pages are resident that nothing touched", n)
	}
	got := b.read(4, 4, s)
	zero := make([]byte, unit)
	for at := uint64(0); at < 4*Granule; at += unit {
		if at >= Granule-unit && at < Granule+unit {
			continue
		}
		if is := got[at : at+unit]; bytes.Equal(is, zero) || is[0] == 0x77 && is[1] == 0x77 {
			t.Fatalf("byte %#x reads as %#x", at, is[:8])
		}
	}
	if ones := bytes.Repeat([]byte{1}, 200); !bytes.Equal(got[Granule-100:Granule+100], ones) {
		t.Error("what was written is not what is read")
	}
	granules := d.mapped.Load().arena.granules(b.place(4), 4*Granule)
	for i := range granules {
		if granules[i].Load() != &settled {
			t.Errorf("granule %d was touched everywhere, and is still looked at", i)
		}
	}
}

// Nor does an address that was used once: mappings move on through all of them.
func TestAddressesThatWereUsedTakeNoMemory(t *testing.T) {
	d := open(t, FreeRunning())
	b := newBook(t, d, 512, 1)
	for at := range uint64(511) {
		b.unmap(at, 1)
		b.move(0, at+1)
	}
	a := d.mapped.Load().arena
	if n := resident(t, a.region[len(a.mem):]); n > 1 {
		t.Errorf("the index of addresses takes %d pages", n)
	}
}

// Streams that touch one page at once all see it scrambled, and none of what
// they write is scrambled away.
func TestAPageIsScrambledOnce(t *testing.T) {
	d := open(t, FreeRunning())
	b := newBook(t, d, 64, 1)
	streams := make([]driver.Stream, 8)
	for i := range streams {
		streams[i] = b.stream()
	}
	for at := range uint64(50) {
		b.unmap(at, 1)
		b.move(0, at+1)
		for page := range Granule / pageBytes {
			for i, s := range streams {
				must(t, d.MemsetAsync(b.place(at+1)+page*pageBytes+uint64(i)*256, byte(i+1), 256, s))
			}
		}
		for _, s := range streams {
			must(t, d.StreamSynchronize(s))
		}
		got, _ := d.reach(b.place(at+1), Granule)
		for page := range int(Granule / pageBytes) {
			for i := range streams {
				if part := got[page*pageBytes+i*256:][:256]; !bytes.Equal(part, bytes.Repeat([]byte{byte(i + 1)}, 256)) {
					t.Fatalf("page %d, stream %d: %#x", page, i, part[:8])
				}
			}
		}
	}
}
