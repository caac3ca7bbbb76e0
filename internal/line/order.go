package line

// passable is how many places behind the first are looked at for one that may pass it.
const passable = 64

// Order is who waits for how many bytes, in the order of their coming, and who may go next. It is a
// value without locks, for one goroutine at a time. Its methods take a time that does not depend on how
// many wait.
type Order struct {
	// Passes is how many may pass one that does not fit while it is the first, each of whom fits.
	Passes int

	places            []place // those in use are a list, the others another
	first, last, free int     // one more than the index of a place, or 0
	waiting           int
}

type place struct {
	bytes        uint64
	passed       int  // by how many, since it is the first
	passes       bool // it may pass, and what comes of it is not known yet
	before, next int
}

// Join takes the last place, and returns its number, which is good until it is left.
func (o *Order) Join(bytes uint64) int {
	i := o.free - 1
	if i < 0 {
		i = len(o.places)
		o.places = append(o.places, place{})
	} else {
		o.free = o.places[i].next
	}
	o.places[i] = place{bytes: bytes, before: o.last}
	o.waiting++
	if o.last == 0 {
		o.first = i + 1
	} else {
		o.places[o.last-1].next = i + 1
	}
	o.last = i + 1
	return i
}

// Leave gives a place up.
func (o *Order) Leave(i int) {
	p := o.places[i]
	if p.before == 0 {
		o.first = p.next
	} else {
		o.places[p.before-1].next = p.next
	}
	if p.next == 0 {
		o.last = p.before
	} else {
		o.places[p.next-1].before = p.before
	}
	o.places[i] = place{next: o.free}
	o.free = i + 1
	o.waiting--
}

// Len is how many wait.
func (o *Order) Len() int { return o.waiting }

// First is the place that is first, if any.
func (o *Order) First() (int, bool) { return o.first - 1, o.first > 0 }

// Next is the place behind another one, if any.
func (o *Order) Next(i int) (int, bool) { return o.places[i].next - 1, o.places[i].next > 0 }

// Bytes is how many bytes a place is for, and SetBytes changes it.
func (o *Order) Bytes(i int) uint64 { return o.places[i].bytes }

// SetBytes is what its name says.
func (o *Order) SetBytes(i int, bytes uint64) { o.places[i].bytes = bytes }

// Pass is for a first place that does not fit. It returns a place behind it whose bytes there is
// room for, and counts that it passes, if the first may be passed once more: one at a time, until
// that place is left or [Order.Stay] says that it did not go.
func (o *Order) Pass(room uint64) (int, bool) {
	if o.first == 0 || o.places[o.first-1].passed >= o.Passes {
		return 0, false
	}
	first := &o.places[o.first-1]
	at := first.next
	for range passable {
		if at == 0 {
			break
		}
		other := &o.places[at-1]
		if other.passes {
			break // what it finds is not known yet
		}
		if other.bytes <= room {
			first.passed++
			other.passes = true
			return at - 1, true
		}
		at = other.next
	}
	return 0, false
}

// Stay is for a place that did not go, whether it might have passed or not.
func (o *Order) Stay(i int) { o.places[i].passes = false }
