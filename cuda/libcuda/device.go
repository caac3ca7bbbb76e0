package libcuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Device is one GPU, in its primary context. All methods are safe for
// concurrent use; Close must be the last.
type Device struct {
	library *Library
	ordinal int
	handle  uintptr
	context uintptr
	// defaultPool is what the zero driver.Pool stands for; 0 if the device
	// has no pools.
	defaultPool driver.Pool
	// granularity is that of mapped memory; 0 if there can be none.
	granularity uint64
	description Description

	// faults is nil unless they are watched.
	faults *faultWatch

	// mode is how calls are made; see invoke.
	mode atomic.Uint32

	// allocator lets one thread at a time into the driver's stream-ordered
	// allocator. The driver serialises them itself, at a price that grows with
	// their number: on an H200 16 goroutines get 3 times as many allocations
	// and frees done one at a time, and a single one loses nothing.
	allocator sync.Mutex
}

var _ driver.Driver = (*Device)(nil)

// Modes of a device.
const (
	// modeFree: calls that name a stream or event do not push the context.
	modeFree = iota
	// modeBind: every call pushes it.
	modeBind
	// modeClosed: every call is refused.
	modeClosed
)

// Open retains the device's primary context, which is made if this process has
// none yet: that takes a few hundred megabytes of the device and may block for
// a second. The device must be closed.
func (l *Library) Open(ordinal int) (*Device, error) {
	handle, err := l.device(ordinal)
	if err != nil {
		return nil, err
	}
	d := &Device{library: l, ordinal: ordinal, handle: handle}
	if d.description, err = l.describeDevice(ordinal, handle); err != nil {
		return nil, err
	}
	if err := d.retain(); err != nil {
		return nil, err
	}
	if d.description.MemoryPools {
		if d.defaultPool, err = d.findDefaultPool(); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	if d.granularity, err = d.findGranularity(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Device) retain() error {
	// Without these nothing works, so nothing is taken.
	if err := d.library.needs(cuDevicePrimaryCtxRelease, cuCtxPushCurrent, cuCtxPopCurrent); err != nil {
		return err
	}
	context, code := d.library.get(cuDevicePrimaryCtxRetain, d.handle)
	err := d.library.fail(cuDevicePrimaryCtxRetain, code)
	d.context = uintptr(context)
	var e *core.DriverError
	if errors.As(err, &e) && e.Code == driver.DeviceUnavailable {
		e.Detail = fmt.Sprintf("device %d is in compute mode %q: another process may hold it", d.ordinal, d.description.ComputeMode)
	}
	return err
}

func (d *Device) findDefaultPool() (driver.Pool, error) {
	pool, code := d.library.get(cuDeviceGetDefaultMemPool, d.handle)
	return driver.Pool(pool), d.library.fail(cuDeviceGetDefaultMemPool, code)
}

// Ordinal is the device's number, from 0.
func (d *Device) Ordinal() int { return d.ordinal }

// String names the kind of device, as resources print it.
func (d *Device) String() string { return "cuda" }

// Description is what Describe returned when the device was opened.
func (d *Device) Description() Description { return d.description }

// Properties describes the device. It makes no device call.
func (d *Device) Properties() (driver.Properties, error) {
	p := d.description.Properties
	p.MapGranularity = d.granularity
	return p, nil
}

// MemInfo returns the free and total memory of the device in bytes.
func (d *Device) MemInfo() (free, total uint64, err error) {
	f := newFrame()
	f.c.Args[0], f.c.Args[1] = f.result(0), f.result(1)
	code := d.bound(cuMemGetInfo, f)
	free, total = f.out[0], f.out[1]
	return free, total, d.end(f, code)
}

// Synchronize blocks until all work of the primary context is done, that of
// other libraries in this process included.
func (d *Device) Synchronize() error {
	return d.unlessFaulting(cuCtxSynchronize, d.do(cuCtxSynchronize, inContext))
}

// Close releases the primary context: it goes when no other code in this process
// holds it. Handles must not be used afterwards; calls are refused with
// CUDA_ERROR_DEINITIALIZED. A second Close does nothing. It may block.
func (d *Device) Close() error {
	d.unwatchFaults()
	before := d.mode.Swap(modeClosed)
	if before == modeClosed {
		return nil
	}
	f := newFrame(d.handle)
	code := d.library.call(cuDevicePrimaryCtxRelease, f)
	switch code {
	case driver.Deinitialized, driver.InvalidContext, driver.ContextDestroyed:
		// The process is ending and the driver was quicker, or the device was
		// reset: there is nothing left to release.
		code = codeSuccess
	case codeSuccess:
	default:
		d.mode.Store(before)
	}
	return d.end(f, code)
}
