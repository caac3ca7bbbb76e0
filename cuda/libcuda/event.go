package libcuda

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// eventDisableTiming is CU_EVENT_DISABLE_TIMING: records and waits are cheaper
// without a time stamp.
const eventDisableTiming = 2

// EventCreate makes an event without timing.
func (d *Device) EventCreate() (driver.Event, error) {
	f := newFrame()
	f.args[0], f.args[1] = f.result(0), eventDisableTiming
	code := d.bound(cuEventCreate, f, 2)
	e := driver.Event(f.out[0])
	return e, d.end(f, code)
}

// EventDestroy gives the handle back. Waits already queued stay.
func (d *Device) EventDestroy(e driver.Event) error {
	f := newFrame()
	f.args[0] = uintptr(e)
	return d.end(f, d.invoke(cuEventDestroy, noStream, f, 1))
}

// EventRecord records in e the work enqueued on s so far. It does not block.
func (d *Device) EventRecord(e driver.Event, s driver.Stream) error {
	f := newFrame()
	f.args[0], f.args[1] = uintptr(e), uintptr(s)
	return d.end(f, d.invoke(cuEventRecord, s, f, 2))
}

// EventQuery reports whether the current record of e is done. It does not
// block.
func (d *Device) EventQuery(e driver.Event) (bool, error) {
	f := newFrame()
	f.args[0] = uintptr(e)
	return d.done(f, d.invoke(cuEventQuery, noStream, f, 1))
}

// EventSynchronize blocks until the current record of e is done.
func (d *Device) EventSynchronize(e driver.Event) error {
	f := newFrame()
	f.args[0] = uintptr(e)
	return d.end(f, d.invoke(cuEventSynchronize, noStream, f, 1))
}
