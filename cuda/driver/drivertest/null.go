package drivertest

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Null is a device that succeeds at once and does nothing: what a benchmark
// measures over it is its caller's own cost. Addresses and handles are unique,
// events are always done, nothing is checked and nothing is kept. The calls of
// a launch path (allocation, free, events, launch) allocate nothing and share
// no cache line that others write. The zero value is ready for use.
type Null struct {
	// Number is what Ordinal returns.
	Number int

	shards [nullShards]nullShard
}

var _ driver.Driver = (*Null)(nil)

const (
	nullShards = 64
	// shardBits is the address space of a shard: no benchmark exhausts it.
	shardBits = 50
	nullAlign = 256
	nullBytes = 1 << 40
	// nullGranularity is that of an H200.
	nullGranularity = 2 << 20
)

type nullShard struct {
	next atomic.Uint64
	_    [120]byte
}

// take returns a range of n numbers that no other call gets. Callers are
// spread by a generator that each thread has for itself.
func (d *Null) take(n uint64) uint64 {
	i := rand.Uint64() % nullShards
	end := d.shards[i].next.Add(n)
	return (i+1)<<shardBits + end - n
}

// Ordinal is the Number.
func (d *Null) Ordinal() int { return d.Number }

// Properties describes a device of 1 TiB.
func (d *Null) Properties() (driver.Properties, error) {
	return driver.Properties{Name: "null", TotalBytes: nullBytes, MemoryPools: true, MapGranularity: nullGranularity}, nil
}

// MemInfo reports that all of the memory is free.
func (d *Null) MemInfo() (free, total uint64, err error) { return nullBytes, nullBytes, nil }

// Synchronize does nothing.
func (d *Null) Synchronize() error { return nil }

// Close does nothing.
func (d *Null) Close() error { return nil }

// MemAlloc returns an address that was not returned before.
func (d *Null) MemAlloc(bytes uint64) (uint64, error) {
	return d.take((bytes + nullAlign - 1) &^ (nullAlign - 1)), nil
}

// MemFree does nothing.
func (d *Null) MemFree(uint64) error { return nil }

// MemAllocAsync returns an address that was not returned before.
func (d *Null) MemAllocAsync(bytes uint64, _ driver.Pool, _ driver.Stream) (uint64, error) {
	return d.MemAlloc(bytes)
}

// MemFreeAsync does nothing.
func (d *Null) MemFreeAsync(uint64, driver.Stream) error { return nil }

// HostAlloc returns memory of Go's heap, as nothing but Go code reaches it.
func (d *Null) HostAlloc(bytes uint64) (driver.HostMemory, error) {
	ptr, err := d.MemAlloc(bytes)
	return driver.HostMemory{Bytes: make([]byte, bytes), DevicePtr: ptr}, err
}

// HostFree does nothing.
func (d *Null) HostFree(driver.HostMemory) error { return nil }

// MemsetAsync does nothing.
func (d *Null) MemsetAsync(uint64, byte, uint64, driver.Stream) error { return nil }

// CopyToDeviceAsync does nothing.
func (d *Null) CopyToDeviceAsync(uint64, []byte, driver.Stream) error { return nil }

// CopyToHostAsync leaves dst as it is.
func (d *Null) CopyToHostAsync([]byte, uint64, driver.Stream) error { return nil }

// CopyOnDeviceAsync does nothing.
func (d *Null) CopyOnDeviceAsync(uint64, uint64, uint64, driver.Stream) error { return nil }

// CopyFromPeerAsync does nothing.
func (d *Null) CopyFromPeerAsync(uint64, driver.Driver, uint64, uint64, driver.Stream) error {
	return nil
}
