package libcuda

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// streamNonBlocking is CU_STREAM_NON_BLOCKING.
const streamNonBlocking = 1

// StreamCreate makes a stream that does not synchronise with the legacy
// default stream.
func (d *Device) StreamCreate() (driver.Stream, error) {
	f := newFrame()
	f.c.Args[0], f.c.Args[1] = f.result(0), streamNonBlocking
	code := d.bound(cuStreamCreate, f)
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
	f.c.Args[0] = uintptr(s)
	return d.done(f, d.invoke(cuStreamQuery, s, f))
}

// StreamSynchronize blocks until all work of s is done.
func (d *Device) StreamSynchronize(s driver.Stream) error {
	return d.onStream(cuStreamSynchronize, s)
}

// onStream makes a call whose only argument is a stream.
func (d *Device) onStream(e entry, s driver.Stream) error {
	f := newFrame()
	f.c.Args[0] = uintptr(s)
	return d.end(f, d.invoke(e, s, f))
}

// StreamWait makes later work of s wait for the record of e that is current at
// this call. It does not block.
func (d *Device) StreamWait(s driver.Stream, e driver.Event) error {
	f := newFrame()
	f.c.Args[0], f.c.Args[1], f.c.Args[2] = uintptr(s), uintptr(e), 0
	return d.end(f, d.invoke(cuStreamWaitEvent, s, f))
}

// StreamID returns a number that, unlike the handle, no later stream of the
// process gets. It does not block. The driver can say since CUDA 12.0.
func (d *Device) StreamID(s driver.Stream) (uint64, error) {
	f := newFrame()
	f.c.Args[0], f.c.Args[1] = uintptr(s), f.result(0)
	code := d.invoke(cuStreamGetID, s, f)
	id := f.out[0]
	return id, d.end(f, code)
}
