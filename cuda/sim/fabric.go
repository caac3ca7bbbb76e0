package sim

import (
	"slices"
	"sync"
	"sync/atomic"
)

// fabric is a set of devices that have waited for or copied from one another,
// directly or through a third. What runs on one may let another go on, so
// they share a count of what happened: who finds nothing to do notes the
// count, looks once more everywhere, and sleeps until it moves. A seeded
// device has no goroutine, so the callers that wait for it run its operations.
type fabric struct {
	devices []*Device // never changed: a larger set is another fabric

	mu     sync.Mutex // taken after any device's lock
	moved  *sync.Cond
	count  uint64
	merged bool // into a larger one
}

// lastDevice numbers the devices of the process.
var lastDevice atomic.Uint64

// joining makes larger fabrics one at a time.
var joining sync.Mutex

// join makes d and p members of one fabric. Both are locked, so neither is
// between having found no fabric and going to sleep without one.
func (d *Device) join(p *Device) {
	if f := d.fabric.Load(); f != nil && f == p.fabric.Load() {
		return
	}
	joining.Lock()
	defer joining.Unlock()
	whole := &fabric{devices: []*Device{d, p}}
	whole.moved = sync.NewCond(&whole.mu)
	olds := []*fabric{d.fabric.Load(), p.fabric.Load()}
	for _, old := range olds {
		if old == nil {
			continue
		}
		for _, m := range old.devices {
			if !m.closed.Load() && !slices.Contains(whole.devices, m) {
				whole.devices = append(whole.devices, m)
			}
		}
	}
	for _, m := range whole.devices {
		m.fabric.Store(whole)
	}
	for _, old := range olds {
		if old != nil {
			old.end()
		}
	}
	d.stalled.Broadcast()
	p.stalled.Broadcast()
}

func (f *fabric) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.merged = true
	f.moved.Broadcast()
}

// stir tells the other devices that something has moved on d.
func (d *Device) stir() {
	f := d.fabric.Load()
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	f.moved.Broadcast()
}

// glance is the fabric of d, nil if it has none, and its count, to be read before
// looking for something to do.
func (d *Device) glance() (f *fabric, seen uint64) {
	if f = d.fabric.Load(); f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		seen = f.count
	}
	return f, seen
}

// sleep blocks until the count is another than seen.
func (f *fabric) sleep(seen uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.count == seen && !f.merged {
		f.moved.Wait()
	}
}

// post tells the other devices what the host has learned from d.
func (f *fabric) post(d *Device, list []sighting) {
	for _, m := range f.devices {
		if m != d && !m.closed.Load() {
			m.inbox.post(list)
		}
	}
}

// stepPeer runs one operation of another seeded device of the fabric; false if
// there is none, or if another goroutine is at work where lock does not wait for that.
func (d *Device) stepPeer(lock func(*sync.Mutex) bool) bool {
	f := d.fabric.Load()
	if f == nil {
		return false
	}
	for _, m := range f.devices {
		if m == d || m.chooser == nil || !lock(&m.mu) {
			continue
		}
		ran := m.step()
		m.mu.Unlock()
		if ran {
			return true
		}
	}
	return false
}

// waiting is the lock of stepPeer for who holds no device's lock.
func waiting(mu *sync.Mutex) bool {
	mu.Lock()
	return true
}

// awaitPeer blocks a stream's goroutine until a record of another device may
// be passed or d is dead.
func (d *Device) awaitPeer(r record) {
	for !d.isDead() {
		f, seen := d.glance()
		if r.passable() {
			return
		}
		if !d.stepPeer(waiting) {
			f.sleep(seen)
		}
	}
}

// stall blocks a synchronisation of a seeded device that found nothing to run
// since the count was seen. It gives the device's lock up meanwhile.
func (d *Device) stall(f *fabric, seen uint64) {
	if f == nil {
		d.stalled.Wait()
		return
	}
	d.mu.Unlock()
	defer d.mu.Lock()
	if !d.stepPeer(waiting) {
		f.sleep(seen)
	}
}
