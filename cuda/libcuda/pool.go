package libcuda

import (
	"cmp"
	"errors"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// poolEntries are what a device must have for its pools to be usable.
var poolEntries = []entry{
	cuDeviceGetDefaultMemPool, cuMemAllocFromPoolAsync, cuMemFreeAsync,
	cuMemPoolCreate, cuMemPoolDestroy, cuMemPoolGetAttribute, cuMemPoolSetAttribute,
}

// Attributes of a pool (CUmemPool_attribute). The reuse policies are ints, all
// others 64-bit numbers of bytes.
const (
	poolReuseFollowEvents = 1 + iota
	poolReuseOpportunistic
	poolReuseInternalDependencies
	poolReleaseThreshold
	poolReserved
	poolReservedHigh
	poolUsed
	poolUsedHigh
)

// reuseAttributes are the attributes that the policies of a set stand for.
var reuseAttributes = []struct {
	policy    driver.ReusePolicy
	attribute uintptr
}{
	{driver.ReuseFollowEvents, poolReuseFollowEvents},
	{driver.ReuseOpportunistic, poolReuseOpportunistic},
	{driver.ReuseInternalDependencies, poolReuseInternalDependencies},
}

// poolProps is CUmemPoolProps.
type poolProps struct {
	allocType    int32
	handleTypes  int32
	locationType int32
	locationID   int32
	security     uintptr
	maxSize      uint64 // since CUDA 12.2; reserved and zero before
	usage        uint16
	_            [54]byte
}

const (
	allocTypePinned    = 1 // CU_MEM_ALLOCATION_TYPE_PINNED
	locationTypeDevice = 1 // CU_MEM_LOCATION_TYPE_DEVICE
	// maxSizeVersion is the first driver that looks at maxSize.
	maxSizeVersion = 12020
)

// PoolCreate makes a memory pool. MaxBytes needs CUDA 12.2.
func (d *Device) PoolCreate(c driver.PoolConfig) (driver.Pool, error) {
	if c.MaxBytes != 0 && d.library.version < maxSizeVersion {
		return 0, unsupported(cuMemPoolCreate, "a pool's MaxBytes needs a driver of CUDA 12.2 or later, this one is of CUDA "+versionText(d.library.version))
	}
	props := &poolProps{allocType: allocTypePinned, locationType: locationTypeDevice, locationID: int32(d.handle), maxSize: c.MaxBytes}
	f := newResultFrame()
	f.c.Args[1] = f.host(unsafe.Pointer(props))
	handle, err := d.result(cuMemPoolCreate, byHandle, f)
	if err != nil {
		return 0, err
	}
	p := driver.Pool(handle)
	if err := d.configure(p, c); err != nil {
		return 0, errors.Join(err, d.PoolDestroy(p))
	}
	return p, nil
}

// configure sets what differs from a fresh pool.
func (d *Device) configure(p driver.Pool, c driver.PoolConfig) error {
	if c.ReleaseThreshold != 0 {
		if err := d.setPool(p, poolReleaseThreshold, c.ReleaseThreshold); err != nil {
			return err
		}
	}
	for _, r := range reuseAttributes {
		if c.Disable&r.policy == 0 {
			continue
		}
		if err := d.setPool(p, r.attribute, 0); err != nil {
			return err
		}
	}
	return nil
}

func (d *Device) setPool(p driver.Pool, attribute uintptr, value uint64) error {
	f := newFrame(uintptr(p), attribute)
	f.c.Args[2] = f.result(0)
	f.out[0] = value
	return d.end(f, d.invoke(cuMemPoolSetAttribute, byHandle, f))
}

// PoolDestroy destroys a pool; memory still allocated from it stays valid until
// it is freed. The default pool cannot be destroyed.
func (d *Device) PoolDestroy(p driver.Pool) error {
	if p == 0 || p == d.defaultPool {
		err := d.library.driverError(cuMemPoolDestroy, driver.InvalidValue)
		err.Detail = "the default pool cannot be destroyed"
		return err
	}
	return d.do(cuMemPoolDestroy, byHandle, uintptr(p))
}

// PoolStats reads the pool's attributes one after another: while others use
// the pool they may be of different moments. It does not block.
func (d *Device) PoolStats(p driver.Pool) (s driver.PoolStats, err error) {
	for _, a := range []struct {
		attribute uintptr
		value     *uint64
	}{{poolUsed, &s.Used}, {poolReserved, &s.Reserved}, {poolUsedHigh, &s.UsedHigh}, {poolReservedHigh, &s.ReservedHigh}} {
		f := newFrame(uintptr(cmp.Or(p, d.defaultPool)), a.attribute)
		f.c.Args[2] = f.result(0)
		if *a.value, err = d.result(cuMemPoolGetAttribute, byHandle, f); err != nil {
			return driver.PoolStats{}, err
		}
	}
	return s, nil
}

// PoolTrim gives unused memory back to the device down to keep bytes. It may
// block.
func (d *Device) PoolTrim(p driver.Pool, keep uint64) error {
	return d.do(cuMemPoolTrimTo, byHandle, uintptr(cmp.Or(p, d.defaultPool)), uintptr(keep))
}
