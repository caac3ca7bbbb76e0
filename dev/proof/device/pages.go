package device

import (
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

const (
	// Unit is the memory of a cell.
	Unit = 256
	// PageBytes is the device's granularity, and the only size of its handles: a page
	// of two cells.
	PageBytes   = cellsAPage * Unit
	cellsAPage  = 2
	memoryBytes = 32 * PageBytes
)

// pages is the device's memory that is mapped by calls of the host.
type pages struct {
	frames []frame
	// table is what is mapped, by address.
	table map[uint64]*mapping
	// blocks says where the program's blocks lie, or lay.
	blocks [oracle.MaxBlocks]extent
	// torn are the blocks under which a page was taken away too early; unmapped those under
	// which one was taken away.
	unmapped, torn oracle.Set
	// OnPages is called before memory is mapped or taken away, unless it is nil.
	OnPages func()
	// Reuse is whose memory blocks have got.
	Reuse Reuse
}

// Reuse is whether blocks have got memory of earlier ones: a part of one's (Split), that of
// several (Merged), and that of several streams (Joined).
type Reuse struct{ Any, Split, Merged, Joined bool }

// frame is a page of physical memory.
type frame struct{ taken, mapped, released bool }

type mapping struct {
	frame      int
	accessible bool
}

// extent is a block's addresses. taken: it has memory that the host's allocator keeps for it.
type extent struct {
	from, to uint64
	taken    bool
}

func (e *extent) has(from, to uint64) bool { return e.from < to && from < e.to }

// Properties are those of a device of a few small pages.
func (d *Device) Properties() (driver.Properties, error) {
	p, err := d.Null.Properties()
	p.TotalBytes, p.MapGranularity = memoryBytes, PageBytes
	return p, err
}

// MemCreate takes the first frame that is not taken.
func (d *Device) MemCreate(bytes uint64) (driver.MemHandle, error) {
	d.onPages()
	if bytes != PageBytes {
		return 0, driver.NewError("MemCreate", driver.InvalidValue)
	}
	for i := range d.frames {
		if !d.frames[i].taken {
			d.frames[i] = frame{taken: true}
			return driver.MemHandle(i + 1), nil
		}
	}
	d.frames = append(d.frames, frame{taken: true})
	return driver.MemHandle(len(d.frames)), nil
}

// MemRelease gives a frame up, when nothing maps it any more.
func (d *Device) MemRelease(h driver.MemHandle) error {
	d.onPages()
	f, err := d.frame("MemRelease", h)
	if err == nil {
		f.released, f.taken = true, f.mapped
	}
	return err
}

func (d *Device) frame(op string, h driver.MemHandle) (*frame, error) {
	if at := int(h) - 1; at >= 0 && at < len(d.frames) && d.frames[at].taken && !d.frames[at].released {
		return &d.frames[at], nil
	}
	return nil, driver.NewError(op, driver.InvalidHandle)
}

// MemMap maps a frame that is mapped nowhere, where nothing is mapped.
func (d *Device) MemMap(ptr, bytes uint64, h driver.MemHandle) error {
	d.onPages()
	f, err := d.frame("MemMap", h)
	if err != nil {
		return err
	}
	if bytes != PageBytes || ptr%PageBytes != 0 || f.mapped || d.table[ptr] != nil {
		return driver.NewError("MemMap", driver.InvalidValue)
	}
	f.mapped = true
	d.table[ptr] = &mapping{frame: int(h) - 1}
	return nil
}

func (d *Device) onPages() {
	if d.OnPages != nil {
		d.OnPages()
	}
}

// each calls f with every page of a range; where nothing is mapped it is an error, and f
// is not called.
func (d *Device) each(op string, ptr, bytes uint64, f func(at uint64, m *mapping)) error {
	d.onPages()
	for at := ptr; at < ptr+bytes; at += PageBytes {
		if d.table[at] == nil {
			return driver.NewError(op, driver.InvalidValue)
		}
	}
	for at := ptr; at < ptr+bytes; at += PageBytes {
		f(at, d.table[at])
	}
	return nil
}

// MemAccess makes mapped pages accessible.
func (d *Device) MemAccess(ptr, bytes uint64) error {
	return d.each("MemAccess", ptr, bytes, func(_ uint64, m *mapping) { m.accessible = true })
}

// MemUnmap takes pages away, and looks whether the device had done all that uses them.
func (d *Device) MemUnmap(ptr, bytes uint64) error {
	return d.each("MemUnmap", ptr, bytes, func(at uint64, m *mapping) {
		f := &d.frames[m.frame]
		f.mapped, f.taken = false, !f.released
		delete(d.table, at)
		for b := range d.blocks {
			if d.blocks[b].has(at, at+PageBytes) {
				d.tear(uint8(b))
			}
		}
	})
}

// tear notes that a page of a block is gone. The device must have done the block's uses,
// and, if the host's allocator had it, all that lies before its free.
func (d *Device) tear(block uint8) {
	d.unmapped |= 1 << block
	early := d.blocks[block].taken || d.frees[block] != never && !d.isDone(d.frees[block])
	for i, n := range d.History.Nodes() {
		early = early || n.Kind == oracle.Work && !n.Aborted && (n.Reads|n.Writes)>>block&1 != 0 && !d.isDone(int32(i))
	}
	if early {
		d.torn |= 1 << block
	}
}

// Torn reports whether a page of a block was unmapped while the device had not done all
// that uses it.
func (d *Device) Torn(block uint8) bool { return d.torn>>block&1 != 0 }

// Held is how many pages are taken from the device, or mapped.
func (d *Device) Held() (n int) {
	for _, f := range d.frames {
		if f.taken {
			n++
		}
	}
	return n
}

// Idle is how many of the pages that are held have no owner: no block lies there, and the device has done
// all that is on the streams of the frees of those that did.
func (d *Device) Idle() int {
	idle := d.Held()
	for at := range d.table {
		for b := range d.blocks {
			if e := &d.blocks[b]; e.has(at, at+PageBytes) && (e.taken || d.InUse(uint8(b)) || !d.isDone(d.History.Last(d.History.Nodes()[d.frees[b]].Stream))) {
				idle--
				break
			}
		}
	}
	return idle
}

// InUse reports whether there is work that uses a block which was freed, that its stream is not ordered
// after at the free, and that the device has not done.
func (d *Device) InUse(block uint8) bool {
	free := d.frees[block]
	for i, n := range d.History.Nodes() {
		if at := int32(i); n.Kind == oracle.Work && !n.Aborted && (n.Reads|n.Writes)>>block&1 != 0 && !d.isDone(at) && (free == never || !d.History.Ordered(at, free)) {
			return true
		}
	}
	return false
}

// Locate says where Block lies.
func (d *Device) Locate(ptr, bytes uint64) { d.blocks[d.Block] = extent{from: ptr, to: ptr + bytes} }

// Allocating says that a block is about to be allocated by the host, on a stream where a launch
// is open: the last event that is recorded there, if it is neither asked for nor followed by a wait, is
// the allocation's. Where none is open its record is deferred.
func (d *Device) Allocating(stream uint8) { d.allocating, d.ready = stream, 0 }

// Allocated puts the allocation of Block on a stream, after Locate.
func (d *Device) Allocated(stream uint8) error {
	where := &d.blocks[d.Block]
	cells, err := d.cells(where)
	if err != nil {
		return err
	}
	where.taken = true
	node := d.History.Add(oracle.Node{Kind: oracle.Alloc, Stream: stream, Op: d.Op, Block: d.Block, Cells: cells, Near: cells | d.around(where)})
	if d.ready != 0 {
		d.events[d.ready-1] = node
	}
	d.ready, d.allocating = 0, noStream
	d.noteReuse(node, cells)
	return nil
}

// noteReuse notes whose memory an allocation has got.
func (d *Device) noteReuse(alloc int32, cells oracle.Cells) {
	var owners, homes int
	var seen oracle.Cells
	var streams [MaxStreams]bool
	nodes := d.History.Nodes()
	for i := alloc; i >= 0; i-- {
		n := &nodes[i]
		if n.Kind != oracle.Free || n.Cells&cells&^seen == 0 {
			continue
		}
		owners++
		seen |= n.Cells
		if !streams[n.Stream] {
			streams[n.Stream] = true
			homes++
		}
		d.Reuse.Split = d.Reuse.Split || n.Cells&^cells != 0
	}
	d.Reuse.Any = d.Reuse.Any || owners > 0
	d.Reuse.Merged = d.Reuse.Merged || owners > 1
	d.Reuse.Joined = d.Reuse.Joined || homes > 1
}

// At is the block that lies at an address.
func (d *Device) At(ptr uint64) (block uint8, ok bool) {
	at := slices.IndexFunc(d.blocks[:], func(e extent) bool { return e.taken && e.from == ptr })
	return uint8(max(at, 0)), at >= 0
}

// FreedOn puts the free of a block on a stream, grouped with others of the same call. On the stream of its
// allocation it waits for nothing.
func (d *Device) FreedOn(stream, block uint8, grouped bool) error {
	where := &d.blocks[block]
	where.taken = false
	cells, err := d.cells(where)
	lazy := !d.History.FreesWait && slices.ContainsFunc(d.History.Nodes(), func(n oracle.Node) bool { return n.Kind == oracle.Alloc && n.Block == block && n.Stream == stream })
	d.frees[block] = d.History.Add(oracle.Node{Kind: oracle.Free, Stream: stream, Op: d.Op, Block: block, Cells: cells, Near: cells | d.around(where), Lazy: lazy, Grouped: grouped})
	return err
}

// cells are what is mapped at some addresses.
func (d *Device) cells(e *extent) (cells oracle.Cells, err error) {
	for at := e.from; at < e.to; at += Unit {
		cell := d.cell(at)
		if cell == 0 {
			return 0, fmt.Errorf("%w: block at %#x", ErrNowhere, e.from)
		}
		cells |= cell
	}
	return cells, nil
}

// cell is what is mapped at an address, none if nothing is that the device may touch.
func (d *Device) cell(at uint64) oracle.Cells {
	m := d.table[at/PageBytes*PageBytes]
	if m == nil || !m.accessible {
		return 0
	}
	return 1 << (m.frame*cellsAPage + int(at%PageBytes/Unit))
}

// around are the free cells at the addresses before and behind, as far as they are free
// in a row.
func (d *Device) around(e *extent) (cells oracle.Cells) {
	for at := e.from - Unit; d.isFree(at); at -= Unit {
		cells |= d.cell(at)
	}
	for at := e.to; d.isFree(at); at += Unit {
		cells |= d.cell(at)
	}
	return cells
}

func (d *Device) isFree(at uint64) bool {
	return d.cell(at) != 0 && !slices.ContainsFunc(d.blocks[:], func(e extent) bool { return e.taken && e.has(at, at+Unit) })
}
