package sim

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// block is one life of a stretch of memory, with the oracle's shadow of it.
// An operation keeps the block that its address meant when it was enqueued, so
// a later block at the same address is never mistaken for it.
type block struct {
	ptr, bytes uint64
	stream     driver.Stream // of the allocation
	slot       int           // of the allocation's operation
	seq        uint64

	// in is where a block is mapped whose life ends with an unmap; nil of
	// others. born and ended say what had been enqueued then: a host's call is
	// in no stream's order, so clocks do not tell.
	in          *reservation
	born, ended vec
	// part is what the program has, as far as layers keep bytes around it; nil: all.
	part atomic.Pointer[part]
	// told: a runtime has told what the program has. withheld: the owner has given the block back, and
	// a layer keeps it.
	told, withheld atomic.Bool
	// trackedTo is the number of the last operation that must be declared to a runtime, if its launch
	// touches the block; of a withheld block, of the last that was enqueued while it had its owner.
	trackedTo atomic.Uint64
	// recorded is the number of the last operation of each stream that is a recorded use, or is none
	// of the block's. The lock of the device's strays guards it.
	recorded map[driver.Stream]uint64

	mu     sync.Mutex
	freed  bool // a free is queued: free is its clock
	free   stamp
	freeBy driver.Stream
	// uses are the ends of those that the next block there must come after, beside the free.
	uses []stamp
	own  [1]shadow
	// stripes are those of a mapping, which is striped, in place of own; made when
	// it is touched.
	stripes []shadow
	striped bool
}

// shadow is the accesses to one part of a block that no later one covers.
type shadow struct{ writes, reads []access }

// stripeCount is into how many parts of one length the oracle cuts a mapping. A
// program cuts one into blocks of its own, whose accesses would fill one shadow.
const stripeCount = 32

// shadows are those of the block's parts, which have one length; its lock is held.
func (b *block) shadows() []shadow {
	if b.stripes != nil {
		return b.stripes
	}
	return b.own[:]
}

// access is one access that no later one covers.
type access struct {
	low, high uint64
	op        string
	stream    driver.Stream
	own       bool // by a kernel of the guard's
	work      *Work
	declared  bool // by a launch
	how       string
	slot      int
	seq       uint64
}

// part is some of a block's bytes; nothing if high is not above low.
type part struct{ low, high uint64 }

func (b *block) end() uint64 { return b.ptr + b.bytes }

// low is where the program's part begins.
func (b *block) low() uint64 {
	if p := b.part.Load(); p != nil {
		return p.low
	}
	return b.ptr
}

// high is where the program's part ends.
func (b *block) high() uint64 {
	if p := b.part.Load(); p != nil {
		return p.high
	}
	return b.end()
}

// wholly is the number of an operation that may mean all of a block: one of the guard's.
const wholly = 0

// bounds are what an operation of this number may mean of the block; high is not above low if
// that is nothing.
func (b *block) bounds(number uint64) (low, high uint64) {
	switch {
	case number == wholly:
		return b.ptr, b.end()
	case b.isLate(number):
		return b.end(), b.end()
	}
	return b.low(), b.high()
}

// isLate reports whether the operation was enqueued after the owner gave the block back, which a
// layer keeps.
func (b *block) isLate(number uint64) bool {
	return b.withheld.Load() && number != wholly && number > b.trackedTo.Load()
}

// hasOwner reports whether the program has, or had, anything of the block.
func (b *block) hasOwner() bool { return b.low() < b.high() }

// party describes one side of a finding.
func (a access) party(kind core.Access) Party {
	return Party{Op: a.op, Stream: a.stream, Number: a.seq, Guard: a.own, Work: a.work, Declared: a.declared,
		How: a.how, Access: kind, Ptr: a.low, Bytes: a.high - a.low}
}

// history remembers freed blocks: the newest, so that a touch of memory that no
// block holds can name whose it was, and all since the oldest indirect launch
// that has not run, because that one may lawfully touch any of them.
type history struct{ blocks []*block }

const (
	historyKept = 256
	historyMax  = 2 * historyKept
)

// add remembers a block, and forgets old ones if it may.
func (h *history) add(b *block, forget bool) {
	if len(h.blocks) >= historyMax && forget {
		n := copy(h.blocks, h.blocks[len(h.blocks)-historyKept:])
		clear(h.blocks[n:])
		h.blocks = h.blocks[:n]
	}
	h.blocks = append(h.blocks, b)
}

// last returns the newest freed block that held addr and that fits, nil if
// there is none.
func (h *history) last(addr uint64, fits func(*block) bool) *block {
	for i := len(h.blocks) - 1; i >= 0; i-- {
		if b := h.blocks[i]; addr >= b.ptr && addr < b.end() && fits(b) {
			return b
		}
	}
	return nil
}

func anyBlock(*block) bool { return true }

// joins reports whether b and another are one memory to who uses it: a range of
// a program may lie across the mappings of one reservation.
func (b *block) joins(other *block) bool {
	return b == other || b != nil && other != nil && b.in != nil && b.in == other.in && !b.told.Load() &&
		!other.told.Load()
}

// aliveFor reports whether the operation may mean b: it is ordered after the
// allocation and not after the free.
func (b *block) aliveFor(o *op) bool {
	if b.in != nil {
		return b.mappedFor(o)
	}
	if !o.now.after(b.slot, b.seq) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.freed || !o.now.after(b.free.slot, b.free.seq)
}

// mappedFor reports whether the operation was enqueued while b was mapped.
func (b *block) mappedFor(o *op) bool {
	if o.now.seq <= b.born.at(o.now.slot) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.freed || o.now.seq <= b.ended.at(o.now.slot)
}

// maxShadow bounds the accesses kept for one part of a block. Beyond it the oldest are
// forgotten, which can hide a race and never invents one.
const maxShadow = 1024

// The oracle compares each access with those that were executed before it and
// that no access in between covers. That is enough, whatever the schedule: if
// A is covered by B (B is after A, reaches as far and conflicts with as much)
// then what races with A and runs after B races with B too.

// touch judges one access of an operation to a block, and keeps it.
func (d *Device) touch(b *block, now stamp, a access, kind core.Access) {
	b.mu.Lock()
	defer b.mu.Unlock()
	me := a.party(kind)
	if !now.after(b.slot, b.seq) {
		d.report(UseBeforeAlloc, b, me, b.allocParty())
	}
	// The access was enqueued before the free, or it would not have found
	// the block; so the free must be ordered after it.
	if b.freed && !b.free.after(a.slot, a.seq) {
		d.report(FreeRace, b, me, b.freeParty())
	}
	if b.striped && b.stripes == nil {
		b.stripes = make([]shadow, stripeCount)
	}
	all := b.shadows()
	width := b.bytes / uint64(len(all))
	for i := (a.low - b.ptr) / width; i < uint64(len(all)) && b.ptr+i*width < a.high; i++ {
		part := a
		part.low, part.high = max(a.low, b.ptr+i*width), min(a.high, b.ptr+(i+1)*width)
		d.touchPart(b, &all[i], now, part, me, kind)
	}
}

func (d *Device) touchPart(b *block, s *shadow, now stamp, a access, me Party, kind core.Access) {
	d.compare(b, s.writes, now, a, me, core.Write)
	if !kind.Writes() {
		s.reads = keep(s.reads, now, a)
		return
	}
	d.compare(b, s.reads, now, a, me, core.Read)
	s.reads = dropCovered(s.reads, now, a)
	s.writes = keep(s.writes, now, a)
}

// compare reports the overlapping accesses that now is not ordered after.
func (d *Device) compare(b *block, olds []access, now stamp, a access, me Party, kind core.Access) {
	for i := range olds {
		old := &olds[i]
		if old.low < a.high && a.low < old.high && !now.after(old.slot, old.seq) {
			d.report(Race, b, me, old.party(kind))
		}
	}
}

// dropCovered removes the accesses that a covers. Mostly there are none, and then
// nothing is copied.
func dropCovered(olds []access, now stamp, a access) []access {
	kept := 0
	for i := range olds {
		old := &olds[i]
		if old.low >= a.low && old.high <= a.high && now.after(old.slot, old.seq) {
			continue
		}
		if kept != i {
			olds[kept] = *old
		}
		kept++
	}
	clear(olds[kept:])
	return olds[:kept]
}

func keep(olds []access, now stamp, a access) []access {
	olds = dropCovered(olds, now, a)
	if len(olds) >= maxShadow {
		olds = olds[1:] // append moves them now and then
	}
	return append(olds, a)
}

// retire queues the free of a block and judges it against the accesses
// executed so far; those executed later are judged by touch.
func (d *Device) retire(b *block, free stamp, by driver.Stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freed, b.free, b.freeBy = true, free, by
	me := b.freeParty()
	if !free.after(b.slot, b.seq) {
		d.report(UseBeforeAlloc, b, me, b.allocParty())
	}
	for _, s := range b.shadows() {
		d.retirePart(b, s.writes, free, core.Write, me)
		d.retirePart(b, s.reads, free, core.Read, me)
	}
}

func (d *Device) retirePart(b *block, olds []access, free stamp, kind core.Access, me Party) {
	for i := range olds {
		if old := &olds[i]; !free.after(old.slot, old.seq) {
			d.report(FreeRace, b, old.party(kind), me)
		}
	}
}

// freeParty describes the free of a block; its lock is held.
func (b *block) freeParty() Party {
	op, by := "free", b.freeBy
	switch {
	case !b.freed: // but withheld
		by = b.stream
	case b.in != nil:
		op = "unmap"
	}
	return Party{Op: op, Stream: by, Ptr: b.ptr, Bytes: b.bytes}
}

func (b *block) lockedFreeParty() Party {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.freeParty()
}
