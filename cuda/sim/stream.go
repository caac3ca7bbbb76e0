package sim

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// stream is a queue of operations and their clock. Every operation has a
// sequence number, those that need no queue entry too.
type stream struct {
	handle driver.Stream
	slot   int
	// ghostOf is the stream of another device that this one stands for; zero of
	// the device's own.
	ghostOf place
	slow    atomic.Int64 // nanoseconds before each operation

	// The device's lock guards these.
	seq       uint64 // of the newest operation
	past      vec    // what the next operation is ordered after
	shared    bool   // past was handed out and must not be changed in place
	hostEpoch uint64 // the host clock that past covers
	frees     fifo[pendingFree]
	capture   *capture       // what the stream captures into, nil if it runs
	launches  []*declaration // of a runtime, that are open
	at        time.Duration  // seeded: when the newest operation that was run has ended

	// done is the sequence number up to which the device has come.
	done atomic.Uint64

	mu      sync.Mutex // guards the queue
	moved   *sync.Cond // done has moved
	waiters int
	queue   fifo[*op]
	working bool // a goroutine serves the queue
	lying   bool // the first in the queue has faulted, and is said to be done
}

// slots gives streams their places in vector clocks. A destroyed stream's
// place is used again only when the host, and so every later operation, is
// ordered after all its work; numbers continue, so no clock is confused.
type slots struct {
	owners []*stream // by slot: the newest owner
	spare  []int
}

// newStream makes a stream; the device's lock is held or not needed yet.
func (d *Device) newStream() *stream {
	s := &stream{}
	for i, slot := range d.slots.spare {
		old := d.slots.owners[slot]
		if d.hostClock.at(slot) < old.seq {
			continue
		}
		d.slots.spare = append(d.slots.spare[:i], d.slots.spare[i+1:]...)
		s.slot, s.seq = slot, old.seq
		s.moved = sync.NewCond(&s.mu)
		s.done.Store(s.seq)
		d.slots.owners[slot] = s
		return s
	}
	return d.addSlot(s)
}

// addSlot gives s a place that no stream had.
func (d *Device) addSlot(s *stream) *stream {
	s.moved = sync.NewCond(&s.mu)
	s.slot = len(d.slots.owners)
	d.slots.owners = append(d.slots.owners, s)
	return s
}

// catchUp orders the next operation after what the host knows to be done.
func (d *Device) catchUp(s *stream) {
	d.collect()
	if s.hostEpoch != d.hostEpoch {
		s.hostEpoch = d.hostEpoch
		s.join(stamp{slot: hostSlot, past: d.hostClock})
	}
}

// join orders later operations of s after o.
func (s *stream) join(o stamp) {
	if !s.past.adds(o) {
		return
	}
	if s.shared {
		s.past, s.shared = s.past.clone(), false
	}
	s.past = s.past.join(o)
}

// orderedAfter reports whether later operations of s are ordered after
// operation seq of slot.
func (s *stream) orderedAfter(slot int, seq uint64) bool {
	return slot == s.slot || s.past.at(slot) >= seq
}

// now is the clock of the newest operation.
func (s *stream) now() stamp {
	s.shared = true
	return stamp{slot: s.slot, seq: s.seq, past: s.past}
}

// learn records that the host has seen o done.
func (d *Device) learn(o stamp) {
	if !d.hostClock.adds(o) {
		return
	}
	d.hostClock = d.hostClock.join(o)
	d.hostEpoch++
	if f := d.fabric.Load(); f != nil {
		f.post(d, d.exported(o))
	}
}

// StreamCreate makes a stream. It does not block.
func (d *Device) StreamCreate() (driver.Stream, error) {
	if err := d.begin(mStreamCreate); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	s := d.newStream()
	s.handle = d.streams.put(s)
	return s.handle, nil
}

// StreamDestroy gives the handle back and does not block. Queued work runs.
func (d *Device) StreamDestroy(h driver.Stream) error {
	if err := d.begin(mStreamDestroy); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if s := d.streams.get(h); s != nil {
		if err := s.prohibited(mStreamDestroy); err != nil {
			return err
		}
	}
	s, err := d.streams.take(mStreamDestroy, h)
	if err != nil {
		return err
	}
	d.slots.spare = append(d.slots.spare, s.slot)
	return nil
}

// lockStream locks the device and brings the stream up to the host's clock.
// The caller unlocks if there is no error.
func (d *Device) lockStream(m *method, h driver.Stream) (*stream, error) {
	if err := d.begin(m); err != nil {
		return nil, err
	}
	s := d.streams.get(h)
	if s == nil {
		d.mu.Unlock()
		return nil, unknown(m, d.streams.what, uint64(h))
	}
	d.catchUp(s)
	return s, nil
}

// StreamQuery reports whether all work of s is done. It does not block.
func (d *Device) StreamQuery(h driver.Stream) (done bool, err error) {
	s, err := d.lockStream(mStreamQuery, h)
	if err != nil {
		return false, err
	}
	defer d.mu.Unlock()
	if err := s.prohibited(mStreamQuery); err != nil {
		return false, err
	}
	if s.done.Load() < s.seq {
		return false, nil
	}
	if err := d.unlessFaulting(mStreamQuery); err != nil {
		return false, err
	}
	d.learn(s.now())
	d.sawDone(record{s: s, seq: s.seq})
	return true, nil
}

// StreamSynchronize blocks until all work that is queued on s at the call is
// done.
func (d *Device) StreamSynchronize(h driver.Stream) error {
	s, err := d.lockStream(mStreamSynchronize, h)
	if err != nil {
		return err
	}
	if err := s.prohibited(mStreamSynchronize); err != nil {
		d.mu.Unlock()
		return err
	}
	if d.watch.begun != nil && s.capture == nil {
		d.mark(s, true)
	}
	target, clock := record{s: s, seq: s.seq}, s.now()
	d.mu.Unlock()
	d.finish(target)
	return d.synchronized(mStreamSynchronize, clock)
}

// Synchronize blocks until all work that is queued at the call is done.
func (d *Device) Synchronize() error {
	if err := d.enter(mSynchronize); err != nil {
		return err
	}
	return d.synchronizeAll(mSynchronize)
}

func (d *Device) synchronizeAll(m *method) error {
	if err := d.lock(m); err != nil {
		return err
	}
	if m == mSynchronize { // direct frees are let through, as by CUDA in relaxed mode
		if err := d.prohibitedAnywhere(m); err != nil {
			d.mu.Unlock()
			return err
		}
	}
	targets := make([]record, len(d.slots.owners))
	clocks := make([]stamp, len(d.slots.owners))
	for i, s := range d.slots.owners {
		targets[i], clocks[i] = record{s: s, seq: s.seq}, s.now()
	}
	d.mu.Unlock()
	d.finish(targets...)
	return d.synchronized(m, clocks...)
}

// synchronized ends a blocking call of m: the host knows the clocks now, and
// pools give back what they hold beyond their thresholds.
func (d *Device) synchronized(m *method, clocks ...stamp) error {
	d.fileStrays(d.strays.seenDone(clocks))
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := cmp.Or(d.state(m), d.unlessFaulting(m)); err != nil {
		return err
	}
	for _, c := range clocks {
		d.learn(c)
	}
	d.memory.Lock()
	defer d.memory.Unlock()
	d.memory.releaseAtSync()
	return nil
}
