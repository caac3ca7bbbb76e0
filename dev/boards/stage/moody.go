package main

import (
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// moody is a driver that can be made slow or deaf, as a busy or a broken one
// is. It is safe for concurrent use.
type moody struct {
	driver.Driver
	slow atomic.Int64 // by how much allocations are
	deaf atomic.Bool  // questions about memory fail
}

var _ driver.Wrapper = (*moody)(nil)

// Unwrap returns the device.
func (m *moody) Unwrap() driver.Driver { return m.Driver }

// MemAllocAsync allocates, after a while if it is slow.
func (m *moody) MemAllocAsync(bytes uint64, pool driver.Pool, s driver.Stream) (uint64, error) {
	time.Sleep(time.Duration(m.slow.Load()))
	return m.Driver.MemAllocAsync(bytes, pool, s)
}

// MemInfo answers, or fails if it is deaf.
func (m *moody) MemInfo() (free, total uint64, err error) {
	if m.deaf.Load() {
		return 0, 0, driver.NewError("cuMemGetInfo", driver.InvalidHandle)
	}
	return m.Driver.MemInfo()
}

// PoolStats answers, or fails if it is deaf.
func (m *moody) PoolStats(p driver.Pool) (driver.PoolStats, error) {
	if m.deaf.Load() {
		return driver.PoolStats{}, driver.NewError("cuMemPoolGetAttribute", driver.InvalidHandle)
	}
	return m.Driver.PoolStats(p)
}

func (m *moody) calm() {
	m.slow.Store(0)
	m.deaf.Store(false)
}
