package libcuda

import (
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// MemsetAsync sets n bytes at ptr to value in the order of s. It does not
// block. No bytes are no call.
func (d *Device) MemsetAsync(ptr uint64, value byte, n uint64, s driver.Stream) error {
	if n == 0 {
		return nil
	}
	f := newFrame()
	f.args[0], f.args[1], f.args[2], f.args[3] = uintptr(ptr), uintptr(value), uintptr(n), uintptr(s)
	return d.end(f, d.invoke(cuMemsetD8Async, s, f, 4))
}

// CopyToDeviceAsync copies src to dst in the order of s. Memory that is not
// page-locked is staged by the driver, which may block.
func (d *Device) CopyToDeviceAsync(dst uint64, src []byte, s driver.Stream) error {
	if len(src) == 0 {
		return nil
	}
	f := newFrame()
	f.args[0], f.args[1] = uintptr(dst), f.host(unsafe.Pointer(unsafe.SliceData(src)))
	return d.transfer(cuMemcpyHtoDAsync, f, uint64(len(src)), s)
}

// CopyToHostAsync copies len(dst) bytes from src in the order of s. Into
// memory that is not page-locked the driver copies before it returns, which
// blocks.
func (d *Device) CopyToHostAsync(dst []byte, src uint64, s driver.Stream) error {
	if len(dst) == 0 {
		return nil
	}
	f := newFrame()
	f.args[0], f.args[1] = f.host(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src)
	return d.transfer(cuMemcpyDtoHAsync, f, uint64(len(dst)), s)
}

// CopyOnDeviceAsync copies n bytes from src to dst in the order of s. It does
// not block.
func (d *Device) CopyOnDeviceAsync(dst, src, n uint64, s driver.Stream) error {
	if n == 0 {
		return nil
	}
	f := newFrame()
	f.args[0], f.args[1] = uintptr(dst), uintptr(src)
	return d.transfer(cuMemcpyDtoDAsync, f, n, s)
}

// transfer makes a copy whose two addresses are set.
func (d *Device) transfer(e entry, f *frame, n uint64, s driver.Stream) error {
	f.args[2], f.args[3] = uintptr(n), uintptr(s)
	return d.end(f, d.invoke(e, s, f, 4))
}
