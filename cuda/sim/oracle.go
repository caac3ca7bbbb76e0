package sim

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

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
	op := "free"
	if b.in != nil {
		op = "unmap"
	}
	return Party{Op: op, Stream: b.freeBy, Ptr: b.ptr, Bytes: b.bytes}
}

func (b *block) lockedFreeParty() Party {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.freeParty()
}
