package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// row is three blocks side by side, the outer ones freed if that is asked for.
type row struct {
	*program
	s                 driver.Stream
	left, block, last uint64
}

const rowBytes = 4096

func newRow(t *testing.T, d *Device, neighboursGone bool) row {
	t.Helper()
	must(t, d.RegisterModule("rows", boundsKernels()...))
	m, err := d.ModuleLoad(driver.Image{Name: "rows"})
	must(t, err)
	r := row{program: &program{TB: t, d: d, module: m}}
	r.s = r.stream()
	r.left, r.block, r.last = r.alloc(rowBytes, r.s), r.alloc(rowBytes, r.s), r.alloc(rowBytes, r.s)
	if r.block != r.left+rowBytes || r.last != r.block+rowBytes {
		t.Fatalf("%#x, %#x and %#x are not side by side: the test shows nothing", r.left, r.block, r.last)
	}
	if neighboursGone {
		r.free(r.left, r.s)
		r.free(r.last, r.s)
	}
	return r
}

// boundsKernels are given (ptr, n). "loop" declares n bytes and writes 64 more,
// word by word, "ahead" declares the word that is n bytes on, "gap" declares n
// bytes and writes the word that is 2n on, "early" declares n bytes and writes
// n that begin a word before.
func boundsKernels() []Kernel {
	declared := func(a Args) []Range { return []Range{Writes(a.Ptr(0), a.U64(1))} }
	return []Kernel{
		{Name: "write", Declare: declared, Run: func(x *Exec) { x.Write(x.Args().Ptr(0), x.Args().U64(1)) }},
		{Name: "loop", Declare: declared, Run: func(x *Exec) {
			for at := uint64(0); at < x.Args().U64(1)+64; at += 8 {
				x.Write(x.Args().Ptr(0)+at, 8)
			}
		}},
		{Name: "ahead", Declare: func(a Args) []Range { return []Range{Writes(a.Ptr(0)+a.U64(1), 8)} },
			Run: func(x *Exec) { x.Write(x.Args().Ptr(0)+x.Args().U64(1), 8) }},
		{Name: "early", Declare: declared, Run: func(x *Exec) { x.Write(x.Args().Ptr(0)-8, x.Args().U64(1)) }},
		{Name: "gap", Declare: declared, Run: func(x *Exec) { x.Write(x.Args().Ptr(0)+2*x.Args().U64(1), 8) }},
	}
}

// Who is accused is the block whose bound was crossed, and nobody beside it,
// whatever lies behind the bound.
func TestAnOverrunIsAboutTheBlockWhoseBoundItCrossed(t *testing.T) {
	for name, overrun := range map[string]func(r row){
		"a fill that goes on":                   func(r row) { must(r, r.d.MemsetAsync(r.block, 1, rowBytes+24, r.s)) },
		"a fill over all that lies behind":      func(r row) { must(r, r.d.MemsetAsync(r.block+8, 1, 2*rowBytes-8, r.s)) },
		"an upload that is too long":            func(r row) { must(r, r.d.CopyToDeviceAsync(r.block, make([]byte, rowBytes+8), r.s)) },
		"a download that is too long":           func(r row) { must(r, r.d.CopyToHostAsync(make([]byte, rowBytes+8), r.block, r.s)) },
		"a kernel that declares too much":       func(r row) { r.launch("write", r.block, rowBytes+8, r.s) },
		"a kernel that does more than declared": func(r row) { r.launch("loop", r.block, rowBytes, r.s) },
	} {
		for _, gone := range []bool{true, false} {
			underEach(t, func(t *testing.T, d *Device) {
				r := newRow(t, d, gone)
				overrun(r)
				r.accuses(name, " over the end ", " behind the end ")
			})
		}
	}
}

// Where the pointer tells, a range that begins elsewhere is the block's too.
func TestAnAccessBesideABlockIsAboutThePointerItWasMadeFrom(t *testing.T) {
	for name, beside := range map[string]func(r row){
		"a word behind, by the pointer":       func(r row) { r.launch("ahead", r.block, rowBytes, r.s) },
		"a word far behind, by the pointer":   func(r row) { r.launch("ahead", r.block, rowBytes+512, r.s) },
		"a word behind that was not declared": func(r row) { r.launch("gap", r.block+rowBytes/2+8, rowBytes/2-8, r.s) },
		"a word before, by the pointer":       func(r row) { r.launch("ahead", r.block, ^uint64(7), r.s) },
		"a fill that begins too early":        func(r row) { must(r, r.d.MemsetAsync(r.block-16, 1, 32, r.s)) },
		"a fill that ends where it begins":    func(r row) { must(r, r.d.MemsetAsync(r.block-16, 1, 16, r.s)) },
	} {
		underEach(t, func(t *testing.T, d *Device) {
			r := newRow(t, d, true)
			beside(r)
			r.accuses(name, " before the block", " behind the end ")
		})
	}
}

// A launch that declares the block and not what lies beside it means the block, also where a live
// neighbour lies. An access by a pointer of the neighbour's own means that.
func TestAnAccessBesideADeclaredBlockIsAboutThatBlock(t *testing.T) {
	for name, beside := range map[string]struct {
		kind Kind
		do   func(r row)
	}{
		"a fill that begins too early":     {OutOfBounds, func(r row) { must(r, r.d.MemsetAsync(r.block-16, 1, 32, r.s)) }},
		"a fill that begins far too early": {OutOfBounds, func(r row) { must(r, r.d.MemsetAsync(r.left+64, 1, rowBytes, r.s)) }},
		"a fill just before":               {OutOfBounds, func(r row) { must(r, r.d.MemsetAsync(r.block-16, 1, 16, r.s)) }},
		"a fill just behind":               {Undeclared, func(r row) { must(r, r.d.MemsetAsync(r.last, 1, 16, r.s)) }},
		"a word before, by the pointer":    {OutOfBounds, func(r row) { r.launch("ahead", r.block, ^uint64(7), r.s) }},
		"a word before, not by Declare":    {OutOfBounds, func(r row) { r.launch("early", r.block, rowBytes, r.s) }},
		"a download that begins too early": {OutOfBounds, func(r row) { must(r, r.d.CopyToHostAsync(make([]byte, 64), r.block-32, r.s)) }},
		"the neighbour's own pointer":      {Undeclared, func(r row) { must(r, r.d.MemsetAsync(r.left, 1, rowBytes, r.s)) }},
		"a pointer to what lies behind":    {Undeclared, func(r row) { r.launch("write", r.last, 16, r.s) }},
		"elsewhere in the neighbour":       {Undeclared, func(r row) { must(r, r.d.MemsetAsync(r.left+64, 1, 64, r.s)) }},
	} {
		underEach(t, func(t *testing.T, d *Device) {
			r := newRow(t, d, false)
			for _, at := range []uint64{r.left, r.block, r.last} {
				d.BlockIsOwned(at, at, rowBytes)
			}
			d.LaunchBegins(r.s, core.UseRecord{LaunchID: 1, Launch: "declares"}, []driver.Declared{{Ptr: r.block, Bytes: rowBytes, Access: core.ReadWrite}})
			beside.do(r)
			d.LaunchEnds(r.s, 1)
			if beside.kind == OutOfBounds {
				r.accuses(name, " before the block", " behind the end ")
				return
			}
			must(t, d.StreamSynchronize(r.s))
			if found := d.Findings(); len(found) != 1 || found[0].Kind != beside.kind || found[0].BlockPtr == r.block {
				t.Errorf("%s: found %v", name, found)
			}
		})
	}
}

// A range may lie across several blocks on either side of the one that its launch declares.
func TestAnAccessAcrossSeveralBlocksIsAboutTheDeclaredBlock(t *testing.T) {
	for _, gone := range []bool{true, false} { // the blocks beside the declared one
		for _, from := range []int64{-2*rowBytes + 64, -2*rowBytes - 64, -rowBytes + 64, -16, 0, 16, rowBytes - 16} {
			for _, to := range []int64{0, 16, rowBytes, rowBytes + 16, 2 * rowBytes, 2*rowBytes + 16, 3 * rowBytes} {
				if from >= to || from >= 0 && to <= rowBytes {
					continue
				}
				underEach(t, func(t *testing.T, d *Device) { acrossARow(t, d, gone, from, to) })
			}
		}
	}
}

// acrossARow reads the range of the middle one of seven blocks, which a launch declares.
func acrossARow(t *testing.T, d *Device, gone bool, from, to int64) {
	p := newProgram(t, d)
	r := row{program: p, s: p.stream()}
	var blocks [7]uint64
	for i := range blocks {
		blocks[i] = r.alloc(rowBytes, r.s)
		d.BlockIsOwned(blocks[i], blocks[i], rowBytes)
	}
	r.left, r.block, r.last = blocks[2], blocks[3], blocks[4]
	if blocks[6] != blocks[0]+6*rowBytes {
		t.Fatal("the blocks are not side by side: the test shows nothing")
	}
	if gone {
		r.free(r.left, r.s)
		r.free(r.last, r.s)
	}
	d.LaunchBegins(r.s, core.UseRecord{LaunchID: 1, Launch: "declares"},
		[]driver.Declared{{Ptr: r.block, Bytes: rowBytes, Access: core.ReadWrite}})
	must(t, d.CopyToHostAsync(make([]byte, to-from), r.block+uint64(from), r.s))
	d.LaunchEnds(r.s, 1)
	name := fmt.Sprintf("[%d, %d), neighbours gone: %v", from, to, gone)
	r.accuses(name, " before the block", " over the end ", " behind the end ")
	low, high := max(from, rowBytes), to
	if from < 0 {
		low, high = from, min(to, 0)
	}
	if by := d.Findings()[0].First; by.Ptr != r.block+uint64(low) || by.Bytes != uint64(high-low) {
		t.Errorf("%s: told of %s", name, by)
	}
}

// The first block of an address space has nothing before it, and another space's addresses below
// that.
func TestAnAccessThatBeginsBelowAllAddressesIsAboutTheFirstBlock(t *testing.T) {
	for memory, first := range map[string]func(r row) uint64{
		"pool": func(r row) uint64 { return r.alloc(rowBytes, r.s) },
		"host": func(r row) uint64 {
			m, err := r.d.HostAlloc(rowBytes)
			must(r, err)
			return m.DevicePtr
		},
		"mapped": func(r row) uint64 { ptr, _ := r.mapped(1); return ptr },
		"carved": func(r row) uint64 {
			ptr, _ := r.mapped(1)
			r.d.BlockBegins(ptr, rowBytes, r.s)
			return ptr
		},
	} {
		for name, reach := range map[string]func(r row){
			"up to it":              func(r row) { r.launch("ahead", r.block, ^uint64(7), r.s) },
			"into it":               func(r row) { r.launch("ahead", r.block, ^uint64(3), r.s) },
			"far, and up to it":     func(r row) { r.launch("long", r.block, 5000, r.s) },
			"not listed by Declare": func(r row) { r.launch("early", r.block, 64, r.s) },
		} {
			underEach(t, func(t *testing.T, d *Device) {
				p := newProgram(t, d)
				long := func(a Args) Range { return Reads(a.Ptr(0)-a.U64(1), a.U64(1)) }
				must(t, d.RegisterModule("rows", append(boundsKernels(), Kernel{Name: "long",
					Declare: func(a Args) []Range { return []Range{long(a)} },
					Run:     func(x *Exec) { r := long(x.Args()); x.Read(r.Ptr, r.Bytes) }})...))
				m, err := d.ModuleLoad(driver.Image{Name: "rows"})
				must(t, err)
				p.module = m
				r := row{program: p, s: p.stream()}
				r.block = first(r)
				reach(r)
				wantCode(t, d.Synchronize(), driver.IllegalAddress)
				found := d.Findings()
				if len(found) != 1 || found[0].Kind != IllegalAddress || found[0].BlockPtr != r.block ||
					!strings.Contains(found[0].Text, " before the block") {
					t.Errorf("%s, %s: found %v, want an access before the block at %#x", memory, name, found, r.block)
				}
			})
		}
	}
}

// The oracle looks at no address that it has nothing at, however long the range is.
func TestARangeOfAllAddressesIsJudgedAtOnce(t *testing.T) {
	for _, at := range []uint64{0, 8, deviceBase - 8, deviceBase, mapBase - 8, mapBase} {
		underEach(t, func(t *testing.T, d *Device) {
			p := newProgram(t, d)
			s := p.stream()
			p.alloc(rowBytes, s)
			p.mapped(1)
			p.launch("read", at, 1<<62, s)
			wantCode(t, d.Synchronize(), driver.IllegalAddress)
			if found := d.Findings(); len(found) != 1 || found[0].Kind != IllegalAddress {
				t.Errorf("%#x: found %v", at, found)
			}
		})
	}
}

// accuses demands one finding, of the middle block, in one of these words.
func (r row) accuses(name string, words ...string) {
	r.Helper()
	must(r, r.d.Synchronize())
	found := r.d.Findings()
	if len(found) != 1 || found[0].Kind != OutOfBounds || found[0].BlockPtr != r.block {
		r.Fatalf("%s: found %v, want one overrun of the block at %#x", name, found, r.block)
	}
	for _, w := range words {
		if strings.Contains(found[0].Text, w) {
			return
		}
	}
	r.Errorf("%s: the text is %q", name, found[0].Text)
}

// A pointer of the freed block's own says that it was that one which was meant, also where a launch
// declares the live block that begins at its end.
func TestAStalePointerIsAboutTheFreedBlock(t *testing.T) {
	for name, stale := range map[string]func(r row){
		"a fill of it":         func(r row) { must(r, r.d.MemsetAsync(r.left, 1, 64, r.s)) },
		"a fill of all of it":  func(r row) { must(r, r.d.MemsetAsync(r.left, 1, rowBytes, r.s)) },
		"a fill of its middle": func(r row) { must(r, r.d.MemsetAsync(r.left+512, 1, 512, r.s)) },
		"a download of all of it": func(r row) {
			must(r, r.d.CopyToHostAsync(make([]byte, rowBytes), r.left, r.s))
		},
		"a kernel":                             func(r row) { r.launch("write", r.left, 64, r.s) },
		"a kernel over all of it":              func(r row) { r.launch("write", r.left, rowBytes, r.s) },
		"a kernel in its middle":               func(r row) { r.launch("write", r.left+512, 64, r.s) },
		"a kernel over all of the other's":     func(r row) { r.launch("write", r.last, rowBytes, r.s) },
		"a kernel over all of both":            func(r row) { r.launch("write", r.left, rowBytes+8, r.s) },
		"a kernel in the first of the other's": func(r row) { r.launch("write", r.last, 8, r.s) },
	} {
		for _, declares := range []bool{false, true} {
			underEach(t, func(t *testing.T, d *Device) {
				r := newRow(t, d, true)
				if declares {
					d.BlockIsOwned(r.block, r.block, rowBytes)
					d.LaunchBegins(r.s, core.UseRecord{LaunchID: 1, Launch: "declares"},
						[]driver.Declared{{Ptr: r.block, Bytes: rowBytes, Access: core.ReadWrite}})
				}
				stale(r)
				if declares {
					d.LaunchEnds(r.s, 1)
				}
				must(t, d.Synchronize())
				found := d.Findings()
				if len(found) != 1 || found[0].Kind != UseAfterFree || found[0].BlockPtr != r.left && found[0].BlockPtr != r.last {
					t.Errorf("%s (declares the live block: %t): found %v, want a use of a freed block, %#x or %#x",
						name, declares, found, r.left, r.last)
				}
			})
		}
	}
}

// What a launch declares from each block's own pointer is in bounds, though the
// blocks lie side by side.
func TestNeighboursThatAreBothDeclaredAreNotOverrun(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		r := newRow(t, d, false)
		must(t, d.RegisterModule("pair", Kernel{Name: "both",
			Declare: func(a Args) []Range { return []Range{Writes(a.Ptr(0), rowBytes), Writes(a.Ptr(1), rowBytes)} },
			Run: func(x *Exec) {
				x.Write(x.Args().Ptr(0), rowBytes)
				x.Write(x.Args().Ptr(1), rowBytes)
			}}))
		m, err := d.ModuleLoad(driver.Image{Name: "pair"})
		must(t, err)
		f, err := d.ModuleFunction(m, "both")
		must(t, err)
		must(t, d.Launch(&driver.Launch{Function: f, Stream: r.s, Args: []driver.Arg{driver.Ptr(r.block), driver.Ptr(r.last)}}))
		must(t, d.CopyOnDeviceAsync(r.last, r.block, rowBytes, r.s))
		r.wantClean()
	})
}
