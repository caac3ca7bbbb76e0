package libcuda

import (
	"errors"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// mapEntries are what a device must have for memory to be mapped.
var mapEntries = []entry{
	cuMemGetAllocationGranularity, cuMemAddressReserve, cuMemAddressFree,
	cuMemCreate, cuMemRelease, cuMemMap, cuMemSetAccess, cuMemUnmap,
}

// allocationProp is CUmemAllocationProp.
type allocationProp struct {
	allocType    int32
	handleTypes  int32
	locationType int32
	locationID   int32
	win32        uintptr
	compression  uint8
	rdma         uint8
	usage        uint16
	_            [4]byte
}

// accessDesc is CUmemAccessDesc.
type accessDesc struct {
	locationType int32
	locationID   int32
	flags        int32
}

const (
	granularityMinimum = 0 // CU_MEM_ALLOC_GRANULARITY_MINIMUM
	accessReadWrite    = 3 // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
)

// pinned is memory of the device that no other process can name.
func (d *Device) pinned() *allocationProp {
	return &allocationProp{allocType: allocTypePinned, locationType: locationTypeDevice, locationID: int32(d.handle)}
}

// findGranularity asks in what units memory is mapped. A device or driver that
// does not do it has none.
func (d *Device) findGranularity() (uint64, error) {
	if !d.description.VirtualMemory || !d.library.has(mapEntries...) {
		return 0, nil
	}
	f := newFrame()
	f.c.Args[0], f.c.Args[1], f.c.Args[2] = f.result(0), f.host(unsafe.Pointer(d.pinned())), granularityMinimum
	code := d.bound(cuMemGetAllocationGranularity, f)
	granularity := f.out[0]
	err := d.end(f, code)
	var e *core.DriverError
	if errors.As(err, &e) && (e.Code == driver.NotSupported || e.Code == driver.NotPermitted) {
		return 0, nil
	}
	return granularity, err
}

// unmappable is the error of e on a device that maps no memory.
func (d *Device) unmappable(e entry) error {
	for _, needed := range mapEntries {
		if !d.library.has(needed) {
			return d.library.fail(needed, codeMissing)
		}
	}
	return unsupported(e, "the device has no virtual memory management")
}

// MemReserve reserves addresses (cuMemAddressReserve). It may block.
func (d *Device) MemReserve(bytes uint64) (uint64, error) {
	if d.granularity == 0 {
		return 0, d.unmappable(cuMemAddressReserve)
	}
	f := newFrame()
	f.c.Args[0], f.c.Args[1], f.c.Args[2] = f.result(0), uintptr(bytes), uintptr(d.granularity)
	f.c.Args[3], f.c.Args[4] = 0, 0
	code := d.bound(cuMemAddressReserve, f)
	ptr := f.out[0]
	return ptr, d.end(f, code)
}

// MemUnreserve gives addresses back (cuMemAddressFree). It may block.
func (d *Device) MemUnreserve(ptr, bytes uint64) error {
	return d.onRange(cuMemAddressFree, ptr, bytes)
}

// MemCreate takes memory from the device (cuMemCreate). It may block.
func (d *Device) MemCreate(bytes uint64) (driver.MemHandle, error) {
	if d.granularity == 0 {
		return 0, d.unmappable(cuMemCreate)
	}
	f := newFrame()
	f.c.Args[0], f.c.Args[1], f.c.Args[2], f.c.Args[3] = f.result(0), uintptr(bytes), f.host(unsafe.Pointer(d.pinned())), 0
	code := d.bound(cuMemCreate, f)
	h := driver.MemHandle(f.out[0])
	return h, d.end(f, code)
}

// MemRelease gives the handle back (cuMemRelease). It may block.
func (d *Device) MemRelease(h driver.MemHandle) error {
	if d.granularity == 0 {
		return d.unmappable(cuMemRelease)
	}
	f := newFrame()
	f.c.Args[0] = uintptr(h)
	return d.end(f, d.bound(cuMemRelease, f))
}

// MemMap puts memory at reserved addresses (cuMemMap). It may block.
func (d *Device) MemMap(ptr, bytes uint64, h driver.MemHandle) error {
	if d.granularity == 0 {
		return d.unmappable(cuMemMap)
	}
	f := newFrame()
	f.c.Args[0], f.c.Args[1], f.c.Args[2], f.c.Args[3], f.c.Args[4] = uintptr(ptr), uintptr(bytes), 0, uintptr(h), 0
	return d.end(f, d.bound(cuMemMap, f))
}

// MemAccess lets this device, and no other, read and write a mapped range
// (cuMemSetAccess). It may block.
func (d *Device) MemAccess(ptr, bytes uint64) error {
	if d.granularity == 0 {
		return d.unmappable(cuMemSetAccess)
	}
	desc := &accessDesc{locationType: locationTypeDevice, locationID: int32(d.handle), flags: accessReadWrite}
	f := newFrame()
	f.c.Args[0], f.c.Args[1], f.c.Args[2], f.c.Args[3] = uintptr(ptr), uintptr(bytes), f.host(unsafe.Pointer(desc)), 1
	return d.end(f, d.bound(cuMemSetAccess, f))
}

// MemUnmap takes a mapped range from its addresses (cuMemUnmap). It may block;
// it does not wait for work that uses the range.
func (d *Device) MemUnmap(ptr, bytes uint64) error { return d.onRange(cuMemUnmap, ptr, bytes) }

// onRange makes a call whose arguments are a range of addresses.
func (d *Device) onRange(e entry, ptr, bytes uint64) error {
	if d.granularity == 0 {
		return d.unmappable(e)
	}
	f := newFrame()
	f.c.Args[0], f.c.Args[1] = uintptr(ptr), uintptr(bytes)
	return d.end(f, d.bound(e, f))
}
