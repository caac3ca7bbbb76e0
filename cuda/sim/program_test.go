package sim

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// program drives one device with helpers that fail the test.
type program struct {
	testing.TB
	d      *Device
	module driver.Module
}

const testImage = "test"

// testKernels touch (ptr, n): "lie" more than they declare, "panic" nothing.
func testKernels() []Kernel {
	return []Kernel{
		{Name: "read", Declare: func(a Args) []Range { return []Range{Reads(a.Ptr(0), a.U64(1))} },
			Run: func(x *Exec) { x.Read(x.Args().Ptr(0), x.Args().U64(1)) }},
		{Name: "write", Declare: func(a Args) []Range { return []Range{Writes(a.Ptr(0), a.U64(1))} },
			Run: func(x *Exec) { clear(x.Write(x.Args().Ptr(0), x.Args().U64(1))) }},
		{Name: "lie", Declare: func(a Args) []Range { return []Range{Reads(a.Ptr(0), a.U64(1)/2)} },
			Run: func(x *Exec) { x.Read(x.Args().Ptr(0), x.Args().U64(1)) }},
		{Name: "write as read", Declare: func(a Args) []Range { return []Range{Reads(a.Ptr(0), a.U64(1))} },
			Run: func(x *Exec) { x.Write(x.Args().Ptr(0), x.Args().U64(1)) }},
		{Name: "panic", Run: func(*Exec) { panic("out of ideas") }},
		{Name: "wild", Run: func(x *Exec) { x.Read(x.Args().Ptr(0), 1) }},
		{Name: "double", Declare: func(a Args) []Range { return []Range{ReadWrites(a.Ptr(0), a.U64(1))} },
			Run: func(x *Exec) {
				for i := range ReadWriteSlice[uint32](x, x.Args().Ptr(0), int(x.Args().U64(1)/4)) {
					ReadWriteSlice[uint32](x, x.Args().Ptr(0)+uint64(i)*4, 1)[0] *= 2
				}
			}},
	}
}

func newProgram(t testing.TB, d *Device) *program {
	t.Helper()
	must(t, d.RegisterModule(testImage, testKernels()...))
	m, err := d.ModuleLoad(driver.Image{Name: testImage})
	must(t, err)
	return &program{TB: t, d: d, module: m}
}

func (p *program) stream() driver.Stream {
	p.Helper()
	s, err := p.d.StreamCreate()
	must(p, err)
	return s
}

func (p *program) event() driver.Event {
	p.Helper()
	e, err := p.d.EventCreate()
	must(p, err)
	return e
}

func (p *program) alloc(n uint64, s driver.Stream) uint64 {
	p.Helper()
	ptr, err := p.d.MemAllocAsync(n, 0, s)
	must(p, err)
	return ptr
}

func (p *program) free(ptr uint64, s driver.Stream) { p.Helper(); must(p, p.d.MemFreeAsync(ptr, s)) }

// launch runs a test kernel over n bytes at ptr.
func (p *program) launch(name string, ptr, n uint64, s driver.Stream) {
	p.Helper()
	f, err := p.d.ModuleFunction(p.module, name)
	must(p, err)
	must(p, p.d.Launch(&driver.Launch{Function: f, Stream: s, Args: []driver.Arg{driver.Ptr(ptr), driver.U64(n)}}))
}

// order makes later work of to wait for the work of from.
func (p *program) order(from, to driver.Stream) {
	p.Helper()
	e := p.event()
	must(p, p.d.EventRecord(e, from))
	must(p, p.d.StreamWait(to, e))
	must(p, p.d.EventDestroy(e))
}

// hold keeps s busy until the returned function is called.
func (p *program) hold(s driver.Stream) (release func()) {
	p.Helper()
	release, err := p.d.Hold(s)
	must(p, err)
	p.Cleanup(release)
	return release
}

// kinds waits for all work and returns the kinds found, each once.
func (p *program) kinds() map[Kind]bool {
	p.Helper()
	must(p, p.d.Synchronize())
	kinds := map[Kind]bool{}
	for _, f := range p.d.Findings() {
		kinds[f.Kind] = true
	}
	return kinds
}

// wantFinding requires the finding, and no other kind.
func (p *program) wantFinding(k Kind) {
	p.Helper()
	if kinds := p.kinds(); !kinds[k] || len(kinds) != 1 {
		p.Fatalf("found %v, want %s alone", p.d.Findings(), k)
	}
}

func (p *program) wantClean() {
	p.Helper()
	if kinds := p.kinds(); len(kinds) != 0 {
		p.Fatalf("findings in a correct program: %v", p.d.Findings())
	}
}
