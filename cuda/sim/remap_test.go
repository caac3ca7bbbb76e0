package sim

import (
	"bytes"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// book is a reserved range and pages of one granule whose handles are kept.
type book struct {
	*program
	at    uint64
	pages []driver.MemHandle
}

// newBook reserves places and maps as many pages there from the front.
func newBook(t *testing.T, d *Device, places, pages uint64) book {
	t.Helper()
	b := book{program: newProgram(t, d)}
	var err error
	b.at, err = d.MemReserve(places * Granule)
	must(t, err)
	for i := range pages {
		h, err := d.MemCreate(Granule)
		must(t, err)
		b.pages = append(b.pages, h)
		must(t, d.MemMap(b.place(i), Granule, h))
	}
	must(t, d.MemAccess(b.at, pages*Granule))
	return b
}

func (b book) place(i uint64) uint64 { return b.at + i*Granule }

// move maps a page at another place.
func (b book) move(page, to uint64) {
	b.Helper()
	must(b, b.d.MemMap(b.place(to), Granule, b.pages[page]))
	must(b, b.d.MemAccess(b.place(to), Granule))
}

func (b book) unmap(from, n uint64) { b.Helper(); must(b, b.d.MemUnmap(b.place(from), n*Granule)) }

func (b book) read(from, n uint64, s driver.Stream) []byte {
	b.Helper()
	got := make([]byte, n*Granule)
	must(b, b.d.CopyToHostAsync(got, b.place(from), s))
	must(b, b.d.StreamSynchronize(s))
	return got
}

func TestAPageOfWhichTheHandleIsKeptIsMappedElsewhere(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		b := newBook(t, d, 4, 2)
		s := b.stream()
		must(t, d.MemsetAsync(b.at, 0x77, 2*Granule, s))
		must(t, d.StreamSynchronize(s))
		b.unmap(0, 2)
		b.move(0, 3)
		b.move(1, 2)
		must(t, d.MemsetAsync(b.place(2), 0x55, 2*Granule, s))
		if got := b.read(2, 2, s); bytes.Count(got, []byte{0x55}) != len(got) {
			t.Error("two pages in a row are not one range")
		}
		b.wantClean()
		b.launch("wild", b.at, 1, s)
		wantCode(t, d.StreamSynchronize(s), driver.IllegalAddress)
	})
}

func TestWhatIsMappedAgainHoldsNeitherItsBytesNorZeros(t *testing.T) {
	d := open(t, FreeRunning())
	b := newBook(t, d, 2, 1)
	s := b.stream()
	must(t, d.MemsetAsync(b.at, 0x77, Granule, s))
	was := b.read(0, 1, s)
	at := uint64(0)
	for _, to := range []uint64{1, 0, 0} {
		b.unmap(at, 1)
		b.move(0, to)
		at = to
		now := b.read(at, 1, s)
		for i := 0; i < len(now); i += 8 {
			if word := now[i : i+8]; bytes.Equal(word, was[i:i+8]) || bytes.Equal(word, make([]byte, 8)) {
				t.Fatalf("at %d the page holds %x, and held %x before", i, word, was[i:i+8])
			}
		}
		was = now
	}
	must(t, d.MemAccess(b.at, Granule)) // a second time changes nothing
	if now := b.read(0, 1, s); !bytes.Equal(now, was) {
		t.Error("access that was given again changed the page")
	}
}

func TestOneBlockOfAProgramLiesAcrossPages(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		b := newBook(t, d, 4, 3)
		s, other := b.stream(), b.stream()
		middle := b.at + Granule/2
		b.launch("write", middle, 2*Granule, s)
		b.launch("lie", middle, 2*Granule, s) // declares the first of two pages
		b.order(s, other)
		b.launch("read", middle, 2*Granule, other)
		must(t, d.Synchronize())
		for _, f := range d.Findings() {
			if f.Kind != Undeclared {
				t.Errorf("found %v", f)
			}
		}
		d.ResetFindings()
		b.launch("write", middle, 2*Granule, s) // the read is on another stream
		b.launch("write", b.place(2), 8, other)
		b.wantFinding(Race)
	})
}

func TestWorkThatIsQueuedOnAPageThatIsTakenIsReported(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		b := newBook(t, d, 3, 3)
		s := b.stream()
		release := b.hold(s)
		b.launch("write", b.at, 3*Granule, s)
		b.unmap(1, 1)
		release()
		wantCode(t, d.StreamSynchronize(s), driver.IllegalAddress)
		f := d.Findings()
		if len(f) != 1 || f[0].Kind != IllegalAddress || f[0].BlockPtr != b.place(1) || f[0].Other.Op != "unmap" {
			t.Errorf("findings: %v", f)
		}
	})
}

// It reaches what is mapped there by then, and is told all the same.
func TestWorkThatUsesAPageByItsOldAddressIsReported(t *testing.T) {
	for name, kernel := range map[string]string{"declared": "write", "undeclared": "wild", "indirect": "through"} {
		t.Run(name, func(t *testing.T) {
			underEach(t, func(t *testing.T, d *Device) {
				b := newBook(t, d, 2, 2)
				must(t, d.RegisterModule("indirect", append(testKernels(), Kernel{Name: "through", Indirect: true,
					Run: func(x *Exec) { x.Read(x.Args().Ptr(0), 8) }})...))
				var err error
				b.module, err = d.ModuleLoad(driver.Image{Name: "indirect"})
				must(t, err)
				s := b.stream()
				release := b.hold(s)
				b.launch(kernel, b.at, 8, s)
				b.unmap(0, 2)
				b.move(1, 0)
				if name == "indirect" { // whose block is not forgotten before it has run
					for range historyMax {
						b.unmap(0, 1)
						b.move(1, 0)
					}
				}
				release()
				if kinds := b.kinds(); !kinds[FreeRace] {
					t.Errorf("found %v, want a use that the unmap does not wait for", d.Findings())
				}
				d.ResetFindings()
				b.launch("write", b.at, 8, s)
				b.wantClean()
			})
		})
	}
}

// What was not known to be done when the page moved is a race, though it ran.
func TestAPageThatMovesBehindNothingIsAFreeRace(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		b := newBook(t, d, 3, 1)
		s, other := b.stream(), b.stream()
		b.launch("write", b.at, Granule, s)
		must(t, d.StreamSynchronize(s))
		b.unmap(0, 1)
		b.move(0, 1)
		b.launch("write", b.place(1), Granule, other)
		b.wantClean()
		b.launch("write", b.place(1), Granule, s)
		for d.Books().QueuedOps > 0 { // it has run, which nobody has asked for
			_, _ = d.StreamQuery(0)
		}
		b.unmap(1, 1)
		b.wantFinding(FreeRace)
	})
}

func TestAPageIsTakenWhileItsHandleOrItsMappingLives(t *testing.T) {
	d := open(t, FreeRunning())
	free := func() uint64 {
		n, _, err := d.MemInfo()
		must(t, err)
		return n
	}
	whole := free()
	b := newBook(t, d, 8, 4)
	check := func(what string, pages uint64) {
		t.Helper()
		if got := whole - free(); got != pages*Granule {
			t.Errorf("%s: %d bytes are taken, want %d pages", what, got, pages)
		}
	}
	check("mapped", 4)
	b.unmap(0, 4)
	check("unmapped, with their handles", 4)
	b.move(2, 5)
	must(t, d.MemRelease(b.pages[2]))
	must(t, d.MemRelease(b.pages[3]))
	check("one is mapped without a handle, two have handles", 3)
	wantCode(t, d.MemMap(b.place(6), Granule, b.pages[2]), driver.InvalidHandle)
	b.unmap(5, 1)
	must(t, d.MemRelease(b.pages[0]))
	must(t, d.MemRelease(b.pages[1]))
	check("all given back", 0)
	must(t, d.MemUnreserve(b.at, 8*Granule))
	if b := d.Books(); b != (Books{Modules: 1}) {
		t.Errorf("left over: %+v", b)
	}
}

func TestAccessMayBeGivenAcrossWhatHasIt(t *testing.T) {
	d := open(t, FreeRunning())
	b := newBook(t, d, 3, 3)
	s := b.stream()
	b.unmap(1, 1)
	must(t, d.MemMap(b.place(1), Granule, b.pages[1]))
	wantCode(t, d.MemsetAsync(b.at, 0, 3*Granule, s), driver.InvalidValue)
	must(t, d.MemAccess(b.at, 3*Granule))
	must(t, d.MemsetAsync(b.at, 0, 3*Granule, s))
	b.wantClean()
}

// A page holds more blocks of a program than one shadow holds accesses.
func TestARaceOnAPageIsSeenBehindThousandsOfBlocks(t *testing.T) {
	d := open(t, FreeRunning())
	b := newBook(t, d, 1, 1)
	s, other := b.stream(), b.stream()
	const block = 512
	for at := uint64(0); at < Granule; at += block {
		must(t, d.MemsetAsync(b.at+at, 1, block, s))
	}
	must(t, d.MemsetAsync(b.at+block, 2, block, other))
	b.wantFinding(Race)
	if f := d.Findings(); len(f) != 1 || f[0].Count != 1 {
		t.Errorf("found %v", f)
	}
	d.ResetFindings()
	b.order(s, other)
	must(t, d.MemsetAsync(b.at, 3, Granule, other))
	b.wantClean()
}
