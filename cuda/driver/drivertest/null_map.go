package drivertest

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// MemReserve returns a range that was not returned before.
func (d *Null) MemReserve(bytes uint64) (uint64, error) {
	ptr := d.take(bytes + nullGranularity)
	return (ptr + nullGranularity - 1) &^ (nullGranularity - 1), nil
}

// MemUnreserve does nothing.
func (d *Null) MemUnreserve(uint64, uint64) error { return nil }

// MemCreate returns a fresh handle.
func (d *Null) MemCreate(uint64) (driver.MemHandle, error) { return driver.MemHandle(d.take(1)), nil }

// MemRelease does nothing.
func (d *Null) MemRelease(driver.MemHandle) error { return nil }

// MemMap does nothing.
func (d *Null) MemMap(uint64, uint64, driver.MemHandle) error { return nil }

// MemAccess does nothing.
func (d *Null) MemAccess(uint64, uint64) error { return nil }

// MemUnmap does nothing.
func (d *Null) MemUnmap(uint64, uint64) error { return nil }
