package sim

import (
	"math"
	"slices"
	"sort"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// A program may cut blocks of its own out of mapped memory, and tell of them: then those,
// and not the mappings, are the blocks that accesses of the reserved range are judged by. A
// block begins and ends on a stream, like one of a pool of the driver's. But where it begins
// is the program's choice, so that is judged too: after the end of each block that had some
// of its bytes before. A mapping is taken away after the ends of all blocks that lay in it.

// carving is the blocks that a program has cut out of one mapping: in the order of their
// addresses, those that live and, where no later one lies, those whose life is over.
type carving []carved

// carved is what of a block lies in one mapping, and no later block has. It ends where the
// allocator's slack behind the block does.
type carved struct {
	low, high uint64
	blk       *block
}

var _ driver.Oracle = (*Device)(nil)

// BlockBegins tells that bytes of mapped memory are a block from now on, in the order of s.
func (d *Device) BlockBegins(ptr, bytes uint64, s driver.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.mapped.Load()
	if h == nil || d.isDead() {
		return
	}
	h.Lock()
	defer h.Unlock()
	begin := d.told(s)
	b := &block{ptr: ptr, bytes: bytes, stream: s, slot: begin.slot, seq: begin.seq}
	b.told.Store(true)
	b.trackedTo.Store(math.MaxUint64)
	for at, end := max(ptr, h.arena.base), min(roundUp(b.end(), unit), h.arena.limit); at < end; {
		n := h.nodeAt(at)
		if n == nil || n.free { // an access there is an illegal address
			at = roundUp(at+1, Granule)
			continue
		}
		n.blk.in.carved = true
		to := min(end, n.end())
		i, j := n.carving.within(at, to)
		for _, old := range n.carving[i:j] {
			d.judgeReuse(old.blk, begin, b.allocParty())
		}
		n.carving = n.carving.cut(i, j, at, to, b)
		at = to
	}
}

// BlockEnds tells that the block at ptr, cut out by the program or allocated by the driver, ends here in the
// order of s, and behind some events. The driver is told of the free of its own later.
func (d *Device) BlockEnds(ptr uint64, s driver.Stream, behind ...driver.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDead() {
		return
	}
	h := d.heapOf(ptr)
	h.Lock()
	defer h.Unlock()
	if b := h.blockAt(ptr); b != nil && b.ptr == ptr && b.in == nil {
		end := d.told(s)
		for _, handle := range behind {
			if e := d.events.get(handle); e != nil {
				b.uses = append(b.uses, e.clock)
				end.past = end.past.clone().join(e.clock)
			}
		}
		d.retire(b, end, s)
		h.history.add(b, d.indirect.Load() == 0)
	}
}

// told is the place of what is told on a stream: behind what was enqueued there. It is
// nothing that a schedule could put elsewhere. The device's lock is held.
func (d *Device) told(h driver.Stream) stamp {
	s := d.streams.get(h)
	if s == nil {
		return stamp{slot: hostSlot, past: d.hostClock.clone()}
	}
	d.catchUp(s)
	s.pass()
	return s.now()
}

// judgeReuse judges a step that takes the memory of a block for something else: it must
// come after the end of the block.
func (d *Device) judgeReuse(old *block, by stamp, party Party) {
	old.mu.Lock()
	defer old.mu.Unlock()
	switch {
	case !old.freed:
		d.report(FreeRace, old, party, old.allocParty())
	case !by.after(old.free.slot, old.free.seq) || slices.ContainsFunc(old.uses, func(end stamp) bool { return !by.after(end.slot, end.seq) }):
		d.report(FreeRace, old, party, old.freeParty())
	}
}

// allocParty describes the allocation of a block.
func (b *block) allocParty() Party {
	return Party{Op: "alloc", Stream: b.stream, Ptr: b.ptr, Bytes: b.bytes}
}

// at is the place of what holds addr, or of the first behind it.
func (c carving) at(addr uint64) int {
	return sort.Search(len(c), func(i int) bool { return c[i].high > addr })
}

// within is what lies in [low, high), at least in part: c[i:j].
func (c carving) within(low, high uint64) (i, j int) {
	i, j = c.at(low), c.at(high)
	if j < len(c) && c[j].low < high {
		j++
	}
	return i, j
}

// cut gives [low, high) to b, and leaves what is there, c[i:j], the rest.
func (c carving) cut(i, j int, low, high uint64, b *block) carving {
	var kept [3]carved
	now := kept[:0]
	if i < j && c[i].low < low {
		now = append(now, carved{c[i].low, low, c[i].blk})
	}
	now = append(now, carved{low, high, b})
	if i < j && c[j-1].high > high {
		now = append(now, carved{high, c[j-1].high, c[j-1].blk})
	}
	return slices.Replace(c, i, j, now...)
}

// meant is heap.meant within a mapping that blocks are cut out of.
func (n *node) meant(addr, number uint64) (*block, uint64) {
	i := n.carving.at(addr)
	if i == len(n.carving) {
		return nil, n.end()
	}
	switch p := n.carving[i]; {
	case addr < p.low:
		return nil, p.low
	case p.blk.freed:
		return nil, p.high
	default:
		return p.blk.meant(addr, number, p.high)
	}
}

// isCarved reports whether blocks are cut out of the node's mapping.
func (n *node) isCarved() bool { return !n.free && n.blk.in != nil && n.blk.in.carved }

// slackOf is the live block in whose slack addr lies, or that it lies in: of the allocator's, or of
// what a layer keeps around the program's part. The program has the block.
func (n *node) slackOf(addr uint64) (b *block) {
	switch {
	case n.free:
	case !n.isCarved():
		b = n.blk
	default:
		if i := n.carving.at(addr); i < len(n.carving) && n.carving[i].low <= addr && !n.carving[i].blk.freed {
			b = n.carving[i].blk
		}
	}
	if b == nil || b.withheld.Load() || !b.hasOwner() {
		return nil
	}
	return b
}

// uncover ends the lives of what lies in a mapping that is unmapped.
func (d *Device) uncover(n *node, end stamp) {
	for _, p := range n.carving {
		d.judgeReuse(p.blk, end, Party{Op: "unmap", Ptr: n.addr, Bytes: n.size})
	}
}
