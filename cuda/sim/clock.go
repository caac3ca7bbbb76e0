package sim

import (
	"sync"
	"sync/atomic"
)

// vec is a vector clock over streams: how far each slot's stream is known to
// be done. A vec that was handed out is never changed.
type vec []uint64

func (v vec) at(slot int) uint64 {
	if slot < len(v) {
		return v[slot]
	}
	return 0
}

// stamp is the clock of one operation: its own place and everything that it
// is ordered after. A slot of hostSlot is work of the host itself.
type stamp struct {
	slot int
	seq  uint64
	past vec
}

const hostSlot = -1

// after reports whether the operation happens after (or is) operation seq of
// slot.
func (t stamp) after(slot int, seq uint64) bool {
	if slot == hostSlot {
		return true
	}
	if slot == t.slot {
		return seq <= t.seq
	}
	return t.past.at(slot) >= seq
}

// adds reports whether joining o would teach v anything.
func (v vec) adds(o stamp) bool {
	if o.slot != hostSlot && v.at(o.slot) < o.seq {
		return true
	}
	for i, n := range o.past {
		if v.at(i) < n {
			return true
		}
	}
	return false
}

// join raises v, in place where it is wide enough, to cover o.
func (v vec) join(o stamp) vec {
	width := max(len(v), len(o.past), o.slot+1)
	if width > cap(v) {
		wide := make(vec, len(v), width+4)
		copy(wide, v)
		v = wide
	}
	for len(v) < width {
		v = append(v, 0)
	}
	for i, n := range o.past {
		v[i] = max(v[i], n)
	}
	if o.slot != hostSlot {
		v[o.slot] = max(v[o.slot], o.seq)
	}
	return v
}

func (v vec) clone() vec { return append(make(vec, 0, len(v)+4), v...) }

// Clocks are vectors over the streams of one device. Once a device has waited
// for another's event they must speak of that one's streams too, and of those
// which that one had heard of. Each such stream gets a slot here as well, its
// ghost: a stream on which nothing is ever queued, so that all that works on
// clocks works on foreign streams. Between two devices a clock travels as a
// list of sightings, which mean the same to both.

// place is the slot of a stream on its own device.
type place struct {
	device uint64 // its number
	slot   int
}

// sighting says how far a stream is known to be done.
type sighting struct {
	place
	seq uint64
}

// slotOf is the slot of a stream in the clocks of d.
func (d *Device) slotOf(p place) int {
	if p.device == d.number {
		return p.slot
	}
	if slot, ok := d.ghosts[p]; ok {
		return slot
	}
	ghost := d.addSlot(&stream{ghostOf: p})
	d.ghosts[p] = ghost.slot
	return ghost.slot
}

// placeOf is the stream that a slot of d means.
func (d *Device) placeOf(slot int) place {
	if p := d.slots.owners[slot].ghostOf; p != (place{}) {
		return p
	}
	return place{d.number, slot}
}

// exported is a clock of d for another device.
func (d *Device) exported(o stamp) []sighting {
	list := make([]sighting, 0, len(o.past)+1)
	for slot, seq := range o.past {
		if seq > 0 {
			list = append(list, sighting{d.placeOf(slot), seq})
		}
	}
	if o.slot != hostSlot {
		list = append(list, sighting{d.placeOf(o.slot), o.seq})
	}
	return list
}

// imported is another device's clock in the slots of d.
func (d *Device) imported(list []sighting) (v vec) {
	for _, s := range list {
		v = v.join(stamp{slot: d.slotOf(s.place), seq: s.seq})
	}
	return v
}

// inbox is what the host has learned at calls of other devices: there is one
// host, and all that it enqueues later, on whatever device, is ordered after.
// Its lock is held for no other, so a device can post under its own.
type inbox struct {
	full atomic.Bool
	mu   sync.Mutex
	seen map[place]uint64
}

func (b *inbox) post(list []sighting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = make(map[place]uint64)
	}
	for _, s := range list {
		b.seen[s.place] = max(b.seen[s.place], s.seq)
	}
	b.full.Store(true)
}

func (b *inbox) take() (list []sighting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p, seq := range b.seen {
		list = append(list, sighting{p, seq})
	}
	clear(b.seen)
	b.full.Store(false)
	return list
}

// collect brings the host's clock up to what was posted.
func (d *Device) collect() {
	if !d.inbox.full.Load() {
		return
	}
	news := stamp{slot: hostSlot, past: d.imported(d.inbox.take())}
	if d.hostClock.adds(news) {
		d.hostClock = d.hostClock.join(news)
		d.hostEpoch++
	}
}
