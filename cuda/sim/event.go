package sim

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// event holds its current record.
type event struct {
	current record
	clock   stamp
	// capture, if not nil, is the capture that it was last recorded in, and
	// reach its place there; it then stands for nothing that runs.
	capture *capture
	reach   reach
	// timing: when the device comes to its records is noted.
	timing bool
}

// EventCreate makes an event. It does not block.
func (d *Device) EventCreate() (driver.Event, error) { return d.makeEvent(mEventCreate, false) }

func (d *Device) makeEvent(m *method, timing bool) (driver.Event, error) {
	if err := d.begin(m); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	return d.events.put(&event{current: completed, clock: stamp{slot: hostSlot}, timing: timing}), nil
}

// EventDestroy gives the handle back and does not block.
func (d *Device) EventDestroy(h driver.Event) error {
	if err := d.begin(mEventDestroy); err != nil {
		return err
	}
	defer d.mu.Unlock()
	_, err := d.events.take(mEventDestroy, h)
	return err
}

// EventRecord records the work of s so far in h. It does not block.
func (d *Device) EventRecord(h driver.Event, s driver.Stream) error {
	st, err := d.lockStream(mEventRecord, s)
	if err != nil {
		return err
	}
	defer d.mu.Unlock()
	e, err := d.events.named(mEventRecord, h)
	if err != nil {
		return err
	}
	if st.capture != nil {
		return e.recordCaptured(mEventRecord, st)
	}
	reached := d.mark(st, e.timing || d.watch.begun != nil)
	e.capture, e.reach = nil, nil
	e.current = record{s: st, seq: st.seq, gate: d.faults.gateForRecord(), moment: reached}
	e.clock = st.now()
	return nil
}

// StreamWait makes later work of s wait for the current record of h. It does
// not block.
func (d *Device) StreamWait(s driver.Stream, h driver.Event) error {
	return d.streamWait(mStreamWait, s, h)
}

func (d *Device) streamWait(m *method, s driver.Stream, h driver.Event) error {
	st, err := d.lockStream(m, s)
	if err != nil {
		return err
	}
	defer d.mu.Unlock()
	e, err := d.events.named(m, h)
	if err != nil {
		return err
	}
	if st.capture != nil || e.capture != nil {
		return d.waitCaptured(m, st, e)
	}
	d.queueWait(st, e.current, e.clock)
	return nil
}

// queueWait makes later work of s wait for a record and, in the clocks, come
// after what it is ordered after.
func (d *Device) queueWait(s *stream, r record, clock stamp) {
	if !d.faults.dropWaits.Load() && !d.faults.dropWait.due() {
		d.waitFor(s, r, clock)
	}
}

func (d *Device) waitFor(s *stream, r record, clock stamp) {
	s.join(clock)
	if d.chooser == nil && r.done() {
		return
	}
	o := newOp(opWait, "wait")
	o.waitFor = r
	d.push(s, o)
}

// EventQuery reports whether the current record of h is done. It does not
// block.
func (d *Device) EventQuery(h driver.Event) (done bool, err error) {
	e, err := lockNamed(d, mEventQuery, &d.events, h)
	if err != nil {
		return false, err
	}
	defer d.mu.Unlock()
	if err := e.prohibited(mEventQuery); err != nil {
		return false, err
	}
	if !e.current.done() {
		return false, nil
	}
	if err := d.unlessFaulting(mEventQuery); err != nil {
		return false, err
	}
	d.learn(e.clock)
	d.sawDone(e.current)
	return true, nil
}

// EventSynchronize blocks until the current record of h is done.
func (d *Device) EventSynchronize(h driver.Event) error {
	e, err := lockNamed(d, mEventSynchronize, &d.events, h)
	if err != nil {
		return err
	}
	if err := e.prohibited(mEventSynchronize); err != nil {
		d.mu.Unlock()
		return err
	}
	current, clock := e.current, e.clock
	d.mu.Unlock()
	d.finish(current)
	return d.synchronized(mEventSynchronize, clock)
}
