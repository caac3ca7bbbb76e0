package libcuda

import (
	"fmt"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// MemsetAsync sets n bytes at ptr to value in the order of s. It does not
// block. No bytes are no call.
func (d *Device) MemsetAsync(ptr uint64, value byte, n uint64, s driver.Stream) error {
	if n == 0 {
		return nil
	}
	return d.do(cuMemsetD8Async, s, uintptr(ptr), uintptr(value), uintptr(n), uintptr(s))
}

// CopyToDeviceAsync copies src to dst in the order of s. Memory that is not
// page-locked is staged by the driver, which may block.
func (d *Device) CopyToDeviceAsync(dst uint64, src []byte, s driver.Stream) error {
	if len(src) == 0 {
		return nil
	}
	f := newFrame(uintptr(dst), 0, uintptr(len(src)), uintptr(s))
	f.c.Args[1] = f.host(unsafe.Pointer(unsafe.SliceData(src)))
	return d.copied(cuMemcpyHtoDAsync, s, f)
}

// CopyToHostAsync copies len(dst) bytes from src in the order of s. Into
// memory that is not page-locked the driver copies before it returns, which
// blocks.
func (d *Device) CopyToHostAsync(dst []byte, src uint64, s driver.Stream) error {
	if len(dst) == 0 {
		return nil
	}
	f := newFrame(0, uintptr(src), uintptr(len(dst)), uintptr(s))
	f.c.Args[0] = f.host(unsafe.Pointer(unsafe.SliceData(dst)))
	return d.copied(cuMemcpyDtoHAsync, s, f)
}

// CopyOnDeviceAsync copies n bytes from src to dst in the order of s. It does
// not block.
func (d *Device) CopyOnDeviceAsync(dst, src, n uint64, s driver.Stream) error {
	if n == 0 {
		return nil
	}
	return d.copied(cuMemcpyDtoDAsync, s, newFrame(uintptr(dst), uintptr(src), uintptr(n), uintptr(s)))
}

// copied makes a copy. One of memory that lies across several mappings of
// cuMemMap the driver refuses as an invalid value where no context is current,
// and makes where one is (release 580; fills and kernels it takes either way). The
// documentation says nothing of it, so the refusal is put to the test.
func (d *Device) copied(e entry, s driver.Stream, f *frame) error {
	code := d.invoke(e, s, f)
	if code == driver.InvalidValue && f.entry == e {
		if again := d.bound(e, f); f.entry == e {
			code = again
		}
		f.entry = e
	}
	return d.end(f, code)
}

// CopyFromPeerAsync copies n bytes from src on peer's device to dst on this
// one, in the order of s, a stream of this device. It does not block. The
// devices need no peer access: without it the driver goes through the host.
func (d *Device) CopyFromPeerAsync(dst uint64, peer driver.Driver, src, n uint64, s driver.Stream) error {
	from, err := d.peer(cuMemcpyPeerAsync, peer)
	if err != nil || n == 0 {
		return err
	}
	return d.do(cuMemcpyPeerAsync, s, uintptr(dst), d.context, uintptr(src), from.context, uintptr(n), uintptr(s))
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
