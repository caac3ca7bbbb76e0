package fence

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Order is the streams of one device that know of each other.
type Order struct {
	port Port
	// deviceOrder: that the host knows something to be completed orders nothing.
	deviceOrder bool
	all         atomic.Pointer[[]*Stream]
	// bySlot are the same by their slots; nil where none has one.
	bySlot atomic.Pointer[[]*Stream]

	mu sync.Mutex
	// free are the slots of removed streams. A slot is used again only
	// after all work of its former stream is done, and goes on counting
	// where that stopped.
	free []freeSlot
	next int
}

type freeSlot struct {
	slot int
	seq  uint64
}

// NewOrder returns an order without streams. With deviceOrder streams wait on the device
// for work that the host has seen done, too.
func NewOrder(port Port, deviceOrder bool) *Order {
	o := &Order{port: port, deviceOrder: deviceOrder}
	o.all.Store(&[]*Stream{})
	o.bySlot.Store(&[]*Stream{})
	return o
}

// Add makes s, which is zero, the order of a stream of the driver's. asksDriver says
// that it may capture behind the runtime's back. What its launches come to is added to
// counts.
func (o *Order) Add(s *Stream, handle driver.Stream, asksDriver bool, counts *Counts) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := freeSlot{slot: o.next}
	if n := len(o.free); n > 0 {
		at, o.free = o.free[n-1], o.free[:n-1]
	} else {
		o.next++
	}
	s.port, s.order, s.handle, s.asksDriver, s.counts = o.port, o, handle, asksDriver, counts
	s.points.port = o.port
	s.slot, s.seq = at.slot, at.seq
	s.completed.Store(at.seq)
	s.clock = newClock().set(at.slot, at.seq)
	all := append(slices.Clone(o.streams()), s)
	o.all.Store(&all)
	o.setSlot(at.slot, s)
}

// setSlot says whose a slot is now; mu is held.
func (o *Order) setSlot(slot int, s *Stream) {
	slots := append(slices.Clone(*o.bySlot.Load()), make([]*Stream, max(0, slot+1-len(*o.bySlot.Load())))...)
	slots[slot] = s
	o.bySlot.Store(&slots)
}

// noteCompleted notes that the device has completed all that a clock covers. Streams that the clock
// does not know of are not looked at: of thousands that would take longer than all else.
func (o *Order) noteCompleted(c clock) {
	slots := *o.bySlot.Load()
	for _, t := range c {
		if s := slots[t.slot]; s != nil {
			s.NoteCompleted(t.seq)
		}
	}
}

// Remove forgets a stream that was given up and whose work is all done, and frees its
// slot; s must be locked. Its events must be closed.
func (o *Order) Remove(s *Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(o.streams()), func(other *Stream) bool { return other == s })
	o.all.Store(&all)
	o.setSlot(s.slot, nil)
	o.free = append(o.free, freeSlot{slot: s.slot, seq: s.seq})
}

// streams are all that were added and not removed.
func (o *Order) streams() []*Stream { return *o.all.Load() }

// CountFrom makes the streams that are added from now on count from seq, as if streams
// that are gone had come that far. It is for tests of where the numbers end.
func (o *Order) CountFrom(seq uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range 64 {
		o.free = append(o.free, freeSlot{slot: o.next, seq: seq})
		o.next++
	}
}

// Slots is how many slots were ever used: the widest that a clock can be.
func (o *Order) Slots() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next
}
