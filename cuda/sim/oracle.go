package sim

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// maxShadow bounds the accesses kept for one block. Beyond it the oldest are
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
		d.report(UseBeforeAlloc, b, me, Party{Op: "alloc", Stream: b.stream, Ptr: b.ptr, Bytes: b.bytes})
	}
	// The access was enqueued before the free, or it would not have found
	// the block; so the free must be ordered after it.
	if b.freed && !b.free.after(a.slot, a.seq) {
		d.report(FreeRace, b, me, b.freeParty())
	}
	d.compare(b, b.writes, now, a, me, core.Write)
	if !kind.Writes() {
		b.reads = keep(b.reads, now, a)
		return
	}
	d.compare(b, b.reads, now, a, me, core.Read)
	b.reads = dropCovered(b.reads, now, a)
	b.writes = keep(b.writes, now, a)
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
		d.report(UseBeforeAlloc, b, me, Party{Op: "alloc", Stream: b.stream, Ptr: b.ptr, Bytes: b.bytes})
	}
	for i := range b.writes {
		if old := &b.writes[i]; !free.after(old.slot, old.seq) {
			d.report(FreeRace, b, old.party(core.Write), me)
		}
	}
	for i := range b.reads {
		if old := &b.reads[i]; !free.after(old.slot, old.seq) {
			d.report(FreeRace, b, old.party(core.Read), me)
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
