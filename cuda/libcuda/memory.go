package libcuda

import (
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// MemAlloc allocates bytes of device memory (cuMemAlloc). It may wait for all
// work of the device.
func (d *Device) MemAlloc(bytes uint64) (uint64, error) {
	return d.get(cuMemAlloc, inContext, uintptr(bytes))
}

// MemFree frees memory of MemAlloc or MemAllocAsync after all work of the
// device (cuMemFree). It may block.
func (d *Device) MemFree(ptr uint64) error {
	return d.do(cuMemFree, inContext, uintptr(ptr))
}

// MemAllocAsync allocates bytes from pool in the order of s. It does not wait
// for the device. The zero pool is the device's default pool, also when another library
// has made a different one current.
func (d *Device) MemAllocAsync(bytes uint64, pool driver.Pool, s driver.Stream) (uint64, error) {
	if bytes == 0 { // some drivers answer with a null pointer
		return 0, d.library.fail(cuMemAllocFromPoolAsync, driver.InvalidValue)
	}
	if pool == 0 {
		if pool = d.defaultPool; pool == 0 {
			return 0, unsupported(cuMemAllocFromPoolAsync, "the device or its driver has no memory pools: use MemAlloc")
		}
	}
	f := newResultFrame(uintptr(bytes), uintptr(pool), uintptr(s))
	d.allocator.Lock()
	code := d.invoke(cuMemAllocFromPoolAsync, s, f)
	d.allocator.Unlock()
	ptr := f.out[0]
	return ptr, d.end(f, code)
}

// MemFreeAsync frees ptr in the order of s. It does not wait for the device.
func (d *Device) MemFreeAsync(ptr uint64, s driver.Stream) error {
	f := newFrame(uintptr(ptr), uintptr(s))
	d.allocator.Lock()
	code := d.invoke(cuMemFreeAsync, s, f)
	d.allocator.Unlock()
	return d.end(f, code)
}

// Flags of cuMemHostAlloc: page-locked for every context of the process, and
// mapped into the devices' address space.
const hostPortableMapped = 1 | 2

// HostAlloc allocates page-locked host memory. It may block.
func (d *Device) HostAlloc(bytes uint64) (driver.HostMemory, error) {
	address, err := d.get(cuMemHostAlloc, inContext, uintptr(bytes), hostPortableMapped)
	if err != nil {
		return driver.HostMemory{}, err
	}
	ptr, err := d.get(cuMemHostGetDevicePointer, inContext, uintptr(address), 0) // by which kernels reach it
	if err != nil {
		_ = d.do(cuMemFreeHost, inContext, uintptr(address)) // the first error says what is wrong
		return driver.HostMemory{}, err
	}
	start := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	return driver.HostMemory{Bytes: unsafe.Slice((*byte)(start), bytes), DevicePtr: ptr}, nil
}

// HostFree frees memory of HostAlloc, whose Bytes must not be touched
// afterwards. It may block.
func (d *Device) HostFree(m driver.HostMemory) error {
	return d.do(cuMemFreeHost, inContext, uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes))))
}
