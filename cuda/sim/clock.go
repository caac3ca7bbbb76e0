package sim

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
