package libcuda

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// streamNonBlocking is CU_STREAM_NON_BLOCKING.
const streamNonBlocking = 1

// StreamCreate makes a stream that does not synchronise with the legacy
// default stream.
func (d *Device) StreamCreate() (driver.Stream, error) {
	f := newFrame()
	f.args[0], f.args[1] = f.result(0), streamNonBlocking
	code := d.bound(cuStreamCreate, f, 2)
	s := driver.Stream(f.out[0])
	return s, d.end(f, code)
}

// StreamDestroy gives the handle back. Work that is queued still runs.
func (d *Device) StreamDestroy(s driver.Stream) error {
	return d.onStream(cuStreamDestroy, s)
}

// StreamQuery reports whether all work of s is done. It does not block.
func (d *Device) StreamQuery(s driver.Stream) (bool, error) {
	f := newFrame()
	f.args[0] = uintptr(s)
	return d.done(f, d.invoke(cuStreamQuery, s, f, 1))
}

// StreamSynchronize blocks until all work of s is done.
func (d *Device) StreamSynchronize(s driver.Stream) error {
	return d.onStream(cuStreamSynchronize, s)
}

// onStream makes a call whose only argument is a stream.
func (d *Device) onStream(e entry, s driver.Stream) error {
	f := newFrame()
	f.args[0] = uintptr(s)
	return d.end(f, d.invoke(e, s, f, 1))
}

// StreamWait makes later work of s wait for the record of e that is current at
// this call. It does not block.
func (d *Device) StreamWait(s driver.Stream, e driver.Event) error {
	f := newFrame()
	f.args[0], f.args[1], f.args[2] = uintptr(s), uintptr(e), 0
	return d.end(f, d.invoke(cuStreamWaitEvent, s, f, 3))
}

// StreamCapturing reports whether s is capturing into a CUDA graph: what is
// enqueued then runs with the graph and not now. It does not block. On the
// legacy default stream it is CUDA_ERROR_STREAM_CAPTURE_IMPLICIT while another
// stream captures.
func (d *Device) StreamCapturing(s driver.Stream) (bool, error) {
	f := newFrame()
	f.args[0], f.args[1] = uintptr(s), f.result(0)
	code := d.invoke(cuStreamIsCapturing, s, f, 2)
	status := uint32(f.out[0])
	return status != 0, d.end(f, code)
}

// StreamID returns a number that, unlike the handle, no later stream of the
// process gets. It does not block. The driver can say since CUDA 12.0.
func (d *Device) StreamID(s driver.Stream) (uint64, error) {
	f := newFrame()
	f.args[0], f.args[1] = uintptr(s), f.result(0)
	code := d.invoke(cuStreamGetID, s, f, 2)
	id := f.out[0]
	return id, d.end(f, code)
}
