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

// mapsMemory: the device can, and the library has every call for it.
func (d *Device) mapsMemory() bool {
	return d.description.VirtualMemory && d.library.needs(mapEntries...) == nil
}

// findGranularity asks in what units memory is mapped. A device or driver that
// does not do it has none.
func (d *Device) findGranularity() (uint64, error) {
	if !d.mapsMemory() {
		return 0, nil
	}
	f := newResultFrame(0, granularityMinimum)
	f.c.Args[1] = f.host(unsafe.Pointer(d.pinned()))
	granularity, err := d.result(cuMemGetAllocationGranularity, inContext, f)
	var e *core.DriverError
	if errors.As(err, &e) && (e.Code == driver.NotSupported || e.Code == driver.NotPermitted) {
		return 0, nil
	}
	return granularity, err
}

// unmappable is the error of e on a device that maps no memory.
func (d *Device) unmappable(e entry) error {
	if err := d.library.needs(mapEntries...); err != nil {
		return err
	}
	return unsupported(e, "the device has no virtual memory management")
}

// MemReserve reserves addresses (cuMemAddressReserve). It may block.
func (d *Device) MemReserve(bytes uint64) (uint64, error) {
	if d.granularity == 0 {
		return 0, d.unmappable(cuMemAddressReserve)
	}
	return d.get(cuMemAddressReserve, inContext, uintptr(bytes), uintptr(d.granularity), 0, 0)
}

// MemUnreserve gives addresses back (cuMemAddressFree). It may block.
func (d *Device) MemUnreserve(ptr, bytes uint64) error {
	return d.remap(cuMemAddressFree, uintptr(ptr), uintptr(bytes))
}

// MemCreate takes memory from the device (cuMemCreate). It may block.
func (d *Device) MemCreate(bytes uint64) (driver.MemHandle, error) {
	if d.granularity == 0 {
		return 0, d.unmappable(cuMemCreate)
	}
	f := newResultFrame(uintptr(bytes), 0, 0)
	f.c.Args[2] = f.host(unsafe.Pointer(d.pinned()))
	h, err := d.result(cuMemCreate, inContext, f)
	return driver.MemHandle(h), err
}

// MemRelease gives the handle back (cuMemRelease). It may block.
func (d *Device) MemRelease(h driver.MemHandle) error {
	return d.remap(cuMemRelease, uintptr(h))
}

// MemMap puts memory at reserved addresses (cuMemMap). It may block.
func (d *Device) MemMap(ptr, bytes uint64, h driver.MemHandle) error {
	return d.remap(cuMemMap, uintptr(ptr), uintptr(bytes), 0, uintptr(h), 0)
}

// MemAccess lets this device, and no other, read and write a mapped range
// (cuMemSetAccess). It may block.
func (d *Device) MemAccess(ptr, bytes uint64) error {
	if d.granularity == 0 {
		return d.unmappable(cuMemSetAccess)
	}
	desc := &accessDesc{locationType: locationTypeDevice, locationID: int32(d.handle), flags: accessReadWrite}
	f := newFrame(uintptr(ptr), uintptr(bytes), 0, 1)
	f.c.Args[2] = f.host(unsafe.Pointer(desc))
	return d.end(f, d.bound(cuMemSetAccess, f))
}

// MemUnmap takes a mapped range from its addresses (cuMemUnmap). It may block;
// it does not wait for work that uses the range.
func (d *Device) MemUnmap(ptr, bytes uint64) error {
	return d.remap(cuMemUnmap, uintptr(ptr), uintptr(bytes))
}

// remap is do for a call that changes what is mapped.
func (d *Device) remap(e entry, args ...uintptr) error {
	if d.granularity == 0 {
		return d.unmappable(e)
	}
	return d.do(e, inContext, args...)
}
