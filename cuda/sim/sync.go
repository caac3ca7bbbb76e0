package sim

import "github.com/fencepost-gpu/fencepost/cuda/driver"

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
	d.learn(s.now())
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.state(m); err != nil {
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
