package gpucore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Write writes a dump of one device that [Read] reads as d, in the driver's form: for a device that is simulated, and for tests. The
// device is one of sm_90. A fault is in a grid, with the addresses that one warp of it accessed; or it has a Grid of -1 and no lanes: then
// of the faults of one multiprocessor only the last is written. Of each access Kind, Bytes and Lanes are written, by an instruction
// of that kind: 1 to 16 bytes are read or written, or 4 to 16 by an atomic. [Fault.PC], [Fault.Offset], [Fault.Function],
// [Grid.Entry] and [Device.SM] are chosen here, and Driver, MoreFaults and HasMemory are not written. What cannot be written is an error; so are w's.
//
// Write blocks as w does, takes some KiB of memory, and holds on to nothing. Calls are independent of each other.
func Write(w io.Writer, d *Dump) error {
	faults := slices.Clone(d.Faults)
	for i := range faults {
		f := &faults[i]
		known := f.Grid >= 0 && f.Grid < len(d.Grids) && len(f.Access.Lanes) > 0 && len(f.Access.Lanes) <= maxLanes
		ended := f.Grid == -1 && len(f.Access.Lanes) == 0
		at := slices.Index(accesses, Access{Kind: f.Access.Kind, Bytes: f.Access.Bytes}.form())
		if !known && !ended || at < 0 || f.SM < 0 || f.SM >= maxRow {
			return fmt.Errorf("gpucore: fault %d cannot be written: it is in no grid, accesses nothing, or in a way that no instruction does", i)
		}
		f.Offset = uint64(at * instructionSize)
	}
	if len(d.Devices) != 1 {
		return errors.New("gpucore: a dump of more or less than one device cannot be written")
	}
	written := *d
	written.Faults, written.Devices = faults, slices.Clone(d.Devices)
	written.Devices[0].SM = writtenSM
	return writeDump(w, &layout{Dump: &written, code: everyAccess})
}

const (
	writtenSM = "sm_90"
	// The first kernel's code, and where in constant bank 0 its parameters are.
	codeAddress = 0x7f0000001000
	paramsAt    = 0x210
)

// form is what tells an access's instruction.
type form struct {
	kind  AccessKind
	bytes uint32
}

func (a Access) form() form { return form{a.Kind, a.Bytes} }

// everyAccess is a kernel's code: an instruction for each of accesses, through the registers R2 and R3, and what ends a kernel.
var accesses, everyAccess = func() (all []form, code []instruction) {
	add := func(kind AccessKind, widths []uint32, in instruction) {
		for i, bytes := range widths {
			if bytes != 0 && !slices.Contains(all, form{kind, bytes}) {
				all, code = append(all, form{kind, bytes}), append(code, instruction{in[0], in[1] | uint64(i)<<9})
			}
		}
	}
	add(AccessRead, widths[:], instruction{0x0000000402087981, 0x000ea8000c1e1100})     // LDG.E R8, desc[UR4][R2.64]
	add(AccessWrite, widths[:], instruction{0x0000000802007986, 0x000fe2000c101104})    // STG.E desc[UR4][R2.64], R8
	add(AccessAtomic, integers[:], instruction{0x0000000802ff79a8, 0x000fe8000c1ee1c4}) // ATOMG.E.EXCH.STRONG.GPU PT, RZ, desc[UR4][R2.64], R8
	return all, append(code, instruction{0x000000000000794d, 0x000fea0003800000})       // EXIT
}()

// layout is how a dump is written.
type layout struct {
	*Dump
	code []instruction // of each kernel; a fault is of the one at its Offset
	// registers, if not nil, fills a lane's registers before those of the address are set.
	registers func(b []byte)
}

// kernels are the names of all kernels.
func (l *layout) kernels() (all []string) {
	add := func(name string) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for i := range l.Grids {
		add(l.Grids[i].Kernel)
	}
	for i := range l.Faults {
		add(l.Faults[i].Kernel)
	}
	return all
}

// part is a section of a dump; its contents are made when it is written.
type part struct {
	kind, link, info, row uint32
	size                  int
	fill                  func(b []byte) // b is zero
}

// writeDump writes a dump as the driver does: contents, then headers with extended numbering.
func writeDump(w io.Writer, l *layout) error {
	out := bufio.NewWriter(w)
	offset, count := uint64(headerSize), uint64(1)
	l.parts(func(p part) { offset, count = offset+uint64(p.size), count+1 })
	var h [headerSize]byte
	header(h[:], 4, offset)
	le.PutUint16(h[62:], 0xffff)
	_, _ = out.Write(h[:]) // Flush returns the error
	var buf []byte
	l.parts(func(p part) {
		buf = slices.Grow(buf[:0], p.size)[:p.size]
		clear(buf)
		p.fill(buf)
		_, _ = out.Write(buf)
	})
	clear(h[:])
	le.PutUint64(h[32:], count)
	_, _ = out.Write(h[:])
	offset = headerSize
	l.parts(func(p part) {
		sectionHeader(h[:], section{kind: p.kind, offset: int64(offset), size: int64(p.size), link: p.link, info: p.info, row: int64(p.row)})
		_, _ = out.Write(h[:])
		offset += uint64(p.size)
	})
	return out.Flush()
}

// header is that of a file whose section headers are at an offset.
func header(b []byte, kind uint16, headers uint64) {
	copy(b, "\x7fELF\x02\x01\x01\x33")
	le.PutUint16(b[16:], kind)
	le.PutUint16(b[18:], machineCUDA)
	le.PutUint64(b[40:], headers)
	le.PutUint16(b[58:], headerSize)
}

func sectionHeader(b []byte, s section) {
	clear(b[:headerSize])
	le.PutUint32(b[4:], s.kind)
	le.PutUint64(b[16:], s.addr)
	le.PutUint64(b[24:], uint64(s.offset))
	le.PutUint64(b[32:], uint64(s.size))
	le.PutUint32(b[40:], s.link)
	le.PutUint32(b[44:], s.info)
	le.PutUint64(b[56:], uint64(s.row))
}

// words puts numbers of 32 bits at the beginning of b.
func words(b []byte, values ...uint32) {
	for i, v := range values {
		le.PutUint32(b[4*i:], v)
	}
}

// parts calls yield with each section, always the same ones; section 0 is not among them.
func (l *layout) parts(yield func(part)) {
	var index uint32
	add := func(kind, link, info, row uint32, size int, fill func([]byte)) uint32 {
		index++
		yield(part{kind, link, info, row, size, fill})
		return index
	}
	nothing := func([]byte) {}
	kernels := l.kernels()
	entry := func(kernel string) uint64 {
		return codeAddress + uint64(slices.Index(kernels, kernel)*len(l.code)*instructionSize)
	}
	device := &l.Devices[0]
	names := "\x00" + device.SM + "\x00" + device.Name + "\x00"
	add(secStrings, 0, 0, 0, len(names), func(b []byte) { copy(b, names) })
	devices := add(secDevices, 0, 0, 72, 72, func(b []byte) {
		words(b, uint32(len(device.SM)+2), 0, 0, 0, 1)
		words(b[28:], device.PCIBus, device.PCIDev)
	})
	contexts := add(secCtxs, devices, 0, 40, 40, nothing)
	modules := add(secModules, contexts, 0, 8, 8, nothing)
	image := newImage(kernels, l.code, entry)
	add(secImage, modules, 0, 0, len(image), func(b []byte) { copy(b, image) })
	grids := add(secGrids, devices, 0, 104, 104*len(l.Grids), func(b []byte) {
		for i := range l.Grids {
			g, at := &l.Grids[i], b[104*i:]
			le.PutUint64(at, g.ID)
			le.PutUint64(at[24:], entry(g.Kernel))
			le.PutUint64(at[48:], paramsAt)
			words(at[72:], slices.Concat(g.Blocks[:], g.Threads[:])...)
		}
	})
	var bySM [][]*Fault
	for i := range l.Faults {
		f := &l.Faults[i]
		for len(bySM) <= f.SM {
			bySM = append(bySM, nil)
		}
		bySM[f.SM] = append(bySM[f.SM], f)
	}
	sms := add(secSMs, devices, 0, 48, 48*len(bySM), func(b []byte) {
		for s, faults := range bySM {
			words(b[48*s:], uint32(s))
			for _, f := range faults {
				words(b[48*s+8:], uint32(f.Exception), 1)
				le.PutUint64(b[48*s+16:], entry(f.Kernel)+f.Offset)
			}
		}
	})
	for s, faults := range bySM {
		faults = slices.DeleteFunc(faults, func(f *Fault) bool { return f.Grid < 0 })
		blocks := add(secBlocks, sms, uint32(s), 24, 24*len(faults), func(b []byte) {
			for i, f := range faults {
				le.PutUint64(b[24*i:], l.Grids[f.Grid].ID)
				words(b[24*i+8:], f.Block[:]...)
			}
		})
		for i, f := range faults {
			l.warp(add, blocks, uint32(i), f, entry(f.Kernel)+f.Offset)
		}
	}
	for i := range l.Grids {
		if params := l.Grids[i].Params; params != nil {
			add(secParams, grids, uint32(i), 0, len(params), func(b []byte) { copy(b, params) })
		}
	}
}

// warp adds the tables of a warp that faulted in the block at a row of a table. It stands at the next instruction.
func (l *layout) warp(add func(kind, link, info, row uint32, size int, fill func([]byte)) uint32, blocks, row uint32, f *Fault, pc uint64) {
	nothing := func([]byte) {}
	lanes := f.Access.Lanes
	all := uint32(uint64(1)<<len(lanes) - 1)
	warps := add(secWarps, blocks, row, 48, 48, func(b []byte) {
		le.PutUint64(b, pc)
		words(b[12:], all, all, 0, 1)
	})
	add(secURegs, warps, 0, 4, 256, nothing)
	add(secUPreds, warps, 0, 4, 32, nothing)
	table := add(secLanes, warps, 0, 56, 56*len(lanes), func(b []byte) {
		for i := range lanes {
			at := b[56*i:]
			le.PutUint64(at, pc+instructionSize)
			le.PutUint64(at[8:], f.Offset+instructionSize)
			words(at[16:], uint32(i), lanes[i].Thread[0], lanes[i].Thread[1], lanes[i].Thread[2], uint32(f.Exception))
		}
	})
	for i := range lanes {
		lane := uint32(i)
		add(0x80000008, table, lane, 24, 0, nothing) // the functions that called this one
		add(secRegs, table, lane, 4, 4*64, func(b []byte) {
			if l.registers != nil {
				l.registers(b)
			}
			le.PutUint64(b[2*4:], lanes[lane].Address)
		})
		add(secPreds, table, lane, 4, 32, nothing)
	}
}

// newImage is a relocated module with kernels, all of the same code.
func newImage(kernels []string, code []instruction, entry func(string) uint64) []byte {
	const symbolSize = 24
	size := len(code) * instructionSize
	var zeros [headerSize]byte
	names, symbols, text := []byte{0}, slices.Clone(zeros[:symbolSize]), []byte(nil)
	for _, k := range kernels {
		s := slices.Clone(zeros[:symbolSize])
		words(s, uint32(len(names)))
		s[4], s[5] = 0x12, 0x10 // a function, and a kernel
		le.PutUint64(s[8:], entry(k))
		le.PutUint64(s[16:], uint64(size))
		symbols = append(symbols, s...)
		names = append(append(names, k...), 0)
		for _, in := range code {
			text = le.AppendUint64(le.AppendUint64(text, in[0]), in[1])
		}
	}
	b := slices.Clone(zeros[:])
	sections := []section{{}, {kind: 2, link: 2, row: symbolSize}, {kind: secStrings}, {kind: 1, addr: codeAddress}}
	for i, contents := range [][]byte{nil, symbols, names, text} {
		sections[i].offset, sections[i].size = int64(len(b)), int64(len(contents))
		b = append(b, contents...)
	}
	header(b, 2, uint64(len(b)))
	le.PutUint16(b[60:], uint16(len(sections)))
	for _, s := range sections {
		b = append(b, zeros[:]...)
		sectionHeader(b[len(b)-headerSize:], s)
	}
	return b
}
