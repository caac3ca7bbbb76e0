package sim

// The seeded schedule. Everything here runs under the device's lock: kernels
// too, which is why they may not call the device.

// maxProgress bounds the operations run within one ordinary call.
const maxProgress = 3

// slowChance is one in how many picks may fall on a slow stream while others
// have work.
const slowChance = 16

// progress runs a few operations, as a device would behind the host's back.
func (d *Device) progress() {
	for range d.chooser.IntN(maxProgress + 1) {
		if !d.step() && !d.stepPeer() {
			return
		}
	}
}

// step runs one operation whose predecessors are done; false if there is none.
func (d *Device) step() bool {
	if d.isDead() {
		return false
	}
	s := d.choose()
	if s == nil {
		return false
	}
	o := s.begin()
	d.run(o)
	d.advance(s, o)
	if d.isDead() {
		d.killLocked()
	}
	return true
}

// choose picks a stream whose first entry may run.
func (d *Device) choose() *stream {
	var ready, quick []*stream
	for _, s := range d.slots.owners {
		o := s.begin()
		if o == nil || o.kind == opWait && !o.waitFor.passable() {
			continue
		}
		ready = append(ready, s)
		if s.slow.Load() == 0 {
			quick = append(quick, s)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	if len(quick) > 0 && len(quick) < len(ready) && d.chooser.IntN(slowChance) != 0 {
		ready = quick
	}
	return ready[d.chooser.IntN(len(ready))]
}

// finish blocks until the records are done or the context dead. It takes and
// releases the device's lock.
func (d *Device) finish(records ...record) {
	if d.chooser == nil {
		for _, r := range records {
			d.await(r)
		}
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range records {
		for !r.done() && !d.isDead() {
			f, seen := d.glance()
			if !d.step() {
				d.stall(f, seen)
			}
		}
	}
}
