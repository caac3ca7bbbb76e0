package gpucore

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// The kinds of section that are read, and those of the device's memory.
const (
	secManaged = 0x80000001
	secShared  = 0x80000004
	secRegs    = 0x80000005
	secImage   = 0x80000007
	secDevices = 0x80000009
	secCtxs    = 0x8000000a
	secSMs     = 0x8000000b
	secGrids   = 0x8000000c
	secBlocks  = 0x8000000d
	secWarps   = 0x8000000e
	secLanes   = 0x8000000f
	secModules = 0x80000010
	secPreds   = 0x80000011
	secParams  = 0x80000012
	secURegs   = 0x80000013
	secUPreds  = 0x80000014
	secMeta    = 0x80000016
	secStrings = 3
)

const (
	maxTables = 1 << 17 // eight full devices have some 100 000 tables of warps and lanes
	maxGrids  = 1 << 12
	maxFaults = 64
	maxParams = 64 << 10 // of one grid
	allParams = 8 << 20
	maxLanes  = 32
)

// parser reads one dump.
type parser struct {
	elf
	dump   Dump
	tables map[uint32]section // the tables by index, but for registers and predicates
	order  []uint32           // their indices in the file's order
	grids  []gridFacts
	ctxIDs map[uint64]place // where a context's handle is found
	warps  []*warp          // those of dump.Faults[:len(warps)]
	// A multiprocessor and the addresses at which warps of it faulted.
	seen    map[smPC]bool
	matches int // functions found for an address
	params  int // bytes of parameters
	// The function that was read last, and its code.
	lastFunction *function
	lastCode     *code
	// The index of a table's first grid.
	firstGrid map[uint32]int
}

// gridFacts is what is not in a Grid.
type gridFacts struct {
	table    uint32 // the table that it is in
	ctx      int    // the context, or -1 if it is not known
	paramsAt uint64 // where in constant bank 0 the parameters begin
}

type place struct{ device, ctx int }

type smPC struct {
	device, sm int
	pc         uint64
}

// warp is a warp that faulted, as it was when the dump was made.
type warp struct {
	section       uint32 // the table of its lanes
	warps, row    uint32 // the table and the row that it is in
	lanes         []lane
	uregs, upreds []uint32
}

type lane struct {
	row         uint32
	thread      [3]uint32
	pc          uint64
	active      bool
	exception   Exception
	regs, preds []uint32
}

func parse(r io.ReaderAt, size int64) (*Dump, error) {
	f, err := openELF(r, size)
	if err != nil {
		return nil, err
	}
	if f.kind != 4 {
		return nil, errors.New("this is no core dump")
	}
	p := &parser{elf: f, tables: map[uint32]section{}, ctxIDs: map[uint64]place{}, seen: map[smPC]bool{}, firstGrid: map[uint32]int{}}
	for _, step := range []func() error{p.readHeaders, p.readTables, p.readLanes, p.readSMs, p.readRegisters, p.readImages} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &p.dump, nil
}

// readHeaders notes the sections that are to be read.
func (p *parser) readHeaders() error {
	return p.sections(func(s section) error {
		switch s.kind {
		case secImage, secDevices, secCtxs, secSMs, secGrids, secBlocks, secWarps, secLanes, secModules, secParams, secMeta, secStrings:
			if s.kind == secStrings && s.index == p.names {
				return nil
			}
			if len(p.order) == maxTables {
				return fmt.Errorf("the dump has more than %d tables", maxTables)
			}
			p.tables[s.index] = s
			p.order = append(p.order, s.index)
		default:
			if s.kind >= secManaged && s.kind <= secShared && s.size > 0 {
				p.dump.HasMemory = true
			}
		}
		return nil
	})
}

// each calls f with every table of a kind.
func (p *parser) each(kind uint32, f func(section) error) error {
	for _, i := range p.order {
		if s := p.tables[i]; s.kind == kind {
			if err := f(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// parent returns the table of a kind that s belongs to.
func (p *parser) parent(s section, kind uint32) (section, error) {
	t, ok := p.tables[s.link]
	if !ok || t.kind != kind {
		return t, fmt.Errorf("section %d belongs to no table of its kind", s.index)
	}
	return t, nil
}

// readTables reads the devices, contexts and grids.
func (p *parser) readTables() error {
	var strings section
	for _, i := range p.order {
		if s := p.tables[i]; s.kind == secStrings {
			strings = s
		}
	}
	return errors.Join(
		p.each(secMeta, func(s section) error {
			if s.size < 16 { // of an older driver
				return nil
			}
			b, err := p.contents(s, 16)
			if err == nil {
				p.dump.Driver = fmt.Sprintf("%d.%d", le.Uint32(b[8:]), le.Uint32(b[12:]))
			}
			return err
		}),
		p.each(secDevices, func(s section) error {
			return p.rows(s, 72, func(i uint32, b []byte) error {
				if len(p.dump.Devices) == 1024 {
					return errors.New("the dump has more than 1024 devices")
				}
				p.dump.Devices = append(p.dump.Devices, Device{Index: int(i), Name: p.text(strings, le.Uint64(b)), SM: p.text(strings, le.Uint64(b[16:])), PCIBus: le.Uint32(b[28:]), PCIDev: le.Uint32(b[32:])})
				return nil
			})
		}),
		p.each(secCtxs, func(s section) error {
			return p.rows(s, 40, func(i uint32, b []byte) error {
				if len(p.ctxIDs) < maxGrids {
					p.ctxIDs[le.Uint64(b)] = place{int(s.info), int(i)}
				}
				return nil
			})
		}),
		p.each(secGrids, p.readGrids),
		p.each(secParams, p.readParams),
	)
}

func (p *parser) readGrids(s section) error {
	p.firstGrid[s.index] = len(p.dump.Grids)
	return p.rows(s, 104, func(_ uint32, b []byte) error {
		if len(p.dump.Grids) == maxGrids {
			return nil
		}
		p.dump.Grids = append(p.dump.Grids, Grid{ID: le.Uint64(b), Device: int(s.info), Entry: le.Uint64(b[24:]), Blocks: three(b[72:]), Threads: three(b[84:])})
		g := gridFacts{table: s.index, paramsAt: le.Uint64(b[48:]), ctx: -1}
		if at, ok := p.ctxIDs[le.Uint64(b[8:])]; ok && at.device == int(s.info) {
			g.ctx = at.ctx
		}
		p.grids = append(p.grids, g)
		return nil
	})
}

func (p *parser) readParams(s section) error {
	first, ok := p.firstGrid[s.link]
	i := int64(first) + int64(s.info)
	if !ok || i >= int64(len(p.grids)) || p.grids[i].table != s.link || p.dump.Grids[i].Params != nil {
		return nil
	}
	b, err := p.contents(s, maxParams)
	if p.params += len(b); p.params > allParams {
		return fmt.Errorf("the parameters take more than %d MiB", allParams>>20)
	}
	p.dump.Grids[i].Params = b
	return err
}

func three(b []byte) [3]uint32 {
	return [3]uint32{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])}
}

// add adds a fault unless there are enough.
func (p *parser) add(f Fault) bool {
	if len(p.dump.Faults) == maxFaults {
		p.dump.MoreFaults++
		return false
	}
	p.dump.Faults = append(p.dump.Faults, f)
	return true
}

// readLanes finds the warps that faulted.
func (p *parser) readLanes() error {
	var lanes []lane // of one warp after the other
	return p.each(secLanes, func(s section) error {
		warps, err := p.parent(s, secWarps)
		if err != nil {
			return err
		}
		row, err := p.oneRow(warps, s.info, 28)
		if err != nil {
			return err
		}
		f := Fault{Grid: -1}
		if le.Uint32(row[24:]) != 0 {
			f.PC = le.Uint64(row)
		}
		valid, active := le.Uint32(row[12:]), le.Uint32(row[16:])
		lanes = lanes[:0]
		err = p.rows(s, 36, func(i uint32, b []byte) error {
			if i == maxLanes {
				return fmt.Errorf("a warp has more than %d lanes", maxLanes)
			}
			l := lane{row: i, pc: le.Uint64(b), thread: three(b[20:]), exception: Exception(le.Uint32(b[32:]))}
			number := le.Uint32(b[16:]) % maxLanes
			l.active = active>>number&1 != 0
			if valid>>number&1 != 0 {
				lanes = append(lanes, l)
			}
			return nil
		})
		if err != nil {
			return err
		}
		// The driver notes the exception at every lane of the warp. Those that took
		// another branch are not active.
		excepted := slices.ContainsFunc(lanes, func(l lane) bool { return l.exception != 0 })
		if !excepted && f.PC == 0 {
			return nil
		}
		if slices.ContainsFunc(lanes, func(l lane) bool { return l.active && (!excepted || l.exception != 0) }) {
			lanes = slices.DeleteFunc(lanes, func(l lane) bool { return !l.active })
		}
		if excepted {
			lanes = slices.DeleteFunc(lanes, func(l lane) bool { return l.exception == 0 })
		}
		if len(lanes) == 0 {
			return nil
		}
		f.Exception, f.Thread = lanes[0].exception, lanes[0].thread
		if err := p.locate(&f, warps); err != nil {
			return err
		}
		p.seen[smPC{f.Device, f.SM, f.PC}] = true
		if p.add(f) {
			p.warps = append(p.warps, &warp{section: s.index, warps: warps.index, row: s.info, lanes: slices.Clone(lanes)})
		}
		return nil
	})
}

// locate says on which device, multiprocessor and block the warps of a table run.
func (p *parser) locate(f *Fault, warps section) error {
	blocks, err := p.parent(warps, secBlocks)
	if err != nil {
		return err
	}
	block, err := p.oneRow(blocks, warps.info, 20)
	if err != nil {
		return err
	}
	sms, err := p.parent(blocks, secSMs)
	if err != nil {
		return err
	}
	sm, err := p.oneRow(sms, blocks.info, 8)
	if err != nil {
		return err
	}
	f.Device, f.SM, f.Block = int(sms.info), int(le.Uint32(sm)), three(block[8:])
	f.Grid = slices.IndexFunc(p.dump.Grids, func(g Grid) bool { return g.Device == f.Device && g.ID == le.Uint64(block) })
	return nil
}

// readSMs adds the exceptions of multiprocessors of which no warp tells.
func (p *parser) readSMs() error {
	return p.each(secSMs, func(s section) error {
		return p.rows(s, 8, func(_ uint32, b []byte) error {
			if len(b) < 24 || le.Uint32(b[8:]) == 0 { // of an older driver; no exception
				return nil
			}
			f := Fault{Device: int(s.info), SM: int(le.Uint32(b)), Grid: -1, Exception: Exception(le.Uint32(b[8:]))}
			if le.Uint32(b[12:]) != 0 {
				f.PC = le.Uint64(b[16:])
			}
			if !p.seen[smPC{f.Device, f.SM, f.PC}] {
				p.add(f)
			}
			return nil
		})
	})
}

// readRegisters reads the registers and predicates of the warps in p.warps.
func (p *parser) readRegisters() error {
	type key struct{ table, row uint32 }
	byLane, byWarp := map[key]*lane{}, map[key]*warp{}
	for _, w := range p.warps {
		byWarp[key{w.warps, w.row}] = w
		for i := range w.lanes {
			byLane[key{w.section, w.lanes[i].row}] = &w.lanes[i]
		}
	}
	if len(p.warps) == 0 {
		return nil
	}
	return p.sections(func(s section) error {
		var to *[]uint32
		switch s.kind {
		case secRegs, secPreds:
			l := byLane[key{s.link, s.info}]
			switch {
			case l == nil:
				return nil
			case s.kind == secRegs:
				to = &l.regs
			default:
				to = &l.preds
			}
		case secURegs, secUPreds:
			w := byWarp[key{s.link, s.info}]
			switch {
			case w == nil:
				return nil
			case s.kind == secURegs:
				to = &w.uregs
			default:
				to = &w.upreds
			}
		default:
			return nil
		}
		if *to != nil {
			return nil
		}
		b, err := p.contents(s, 256*4)
		if err != nil {
			return err
		}
		*to = make([]uint32, len(b)/4)
		for i := range *to {
			(*to)[i] = le.Uint32(b[4*i:])
		}
		return nil
	})
}
