package libcuda

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// CopyFromPeerAsync copies n bytes from src on peer's device to dst on this
// one, in the order of s, a stream of this device. It does not block. The
// devices need no peer access: without it the driver goes through the host.
func (d *Device) CopyFromPeerAsync(dst uint64, peer driver.Driver, src, n uint64, s driver.Stream) error {
	from, err := d.peer(cuMemcpyPeerAsync, peer)
	if err != nil || n == 0 {
		return err
	}
	f := newFrame()
	f.args[0], f.args[1], f.args[2] = uintptr(dst), d.context, uintptr(src)
	f.args[3], f.args[4], f.args[5] = from.context, uintptr(n), uintptr(s)
	return d.end(f, d.invoke(cuMemcpyPeerAsync, s, f, 6))
}

// StreamWaitPeer makes later work of s wait for the record of e, an event of
// peer's, that is current at this call. It does not block. CUDA's waits cross
// devices; its records do not.
func (d *Device) StreamWaitPeer(s driver.Stream, peer driver.Driver, e driver.Event) error {
	if _, err := d.peer(cuStreamWaitEvent, peer); err != nil {
		return err
	}
	return d.StreamWait(s, e)
}

// peer is the device beneath what may be a wrapper. The driver would take the
// context of one that was closed for an address.
func (d *Device) peer(e entry, peer driver.Driver) (*Device, error) {
	device, ok := driver.Unwrap(peer).(*Device)
	if !ok || device.library != d.library {
		err := d.library.driverError(e, driver.InvalidValue)
		err.Detail = "the peer is not a device of this CUDA driver: open both with one libcuda.Library"
		return nil, err
	}
	if device.mode.Load() == modeClosed {
		err := d.library.driverError(e, driver.InvalidContext)
		err.Detail = fmt.Sprintf("the peer, device %d, was closed: open it anew", device.ordinal)
		return nil, err
	}
	return device, nil
}
