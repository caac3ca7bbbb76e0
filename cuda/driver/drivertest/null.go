package drivertest

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

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

// StreamCreate returns a fresh handle.
func (d *Null) StreamCreate() (driver.Stream, error) { return driver.Stream(d.take(1)), nil }

// StreamDestroy does nothing.
func (d *Null) StreamDestroy(driver.Stream) error { return nil }

// StreamQuery reports that all work is done.
func (d *Null) StreamQuery(driver.Stream) (bool, error) { return true, nil }

// StreamSynchronize does nothing.
func (d *Null) StreamSynchronize(driver.Stream) error { return nil }

// StreamWait does nothing.
func (d *Null) StreamWait(driver.Stream, driver.Event) error { return nil }

// StreamWaitPeer does nothing.
func (d *Null) StreamWaitPeer(driver.Stream, driver.Driver, driver.Event) error { return nil }

// StreamBeginCapture does nothing: no stream is ever capturing.
func (d *Null) StreamBeginCapture(driver.Stream) error { return nil }

// StreamEndCapture returns a fresh handle of a graph without work.
func (d *Null) StreamEndCapture(driver.Stream) (driver.Graph, error) {
	return driver.Graph(d.take(1)), nil
}

// StreamCapturing reports that the stream is not capturing.
func (d *Null) StreamCapturing(driver.Stream) (bool, error) { return false, nil }

// GraphLaunch does nothing.
func (d *Null) GraphLaunch(driver.Graph, driver.Stream) error { return nil }

// GraphDestroy does nothing.
func (d *Null) GraphDestroy(driver.Graph) error { return nil }

// EventCreate returns a fresh handle.
func (d *Null) EventCreate() (driver.Event, error) { return driver.Event(d.take(1)), nil }

// EventDestroy does nothing.
func (d *Null) EventDestroy(driver.Event) error { return nil }

// EventRecord does nothing.
func (d *Null) EventRecord(driver.Event, driver.Stream) error { return nil }

// EventQuery reports that the event is done.
func (d *Null) EventQuery(driver.Event) (bool, error) { return true, nil }

// EventSynchronize does nothing.
func (d *Null) EventSynchronize(driver.Event) error { return nil }

// TimingEventCreate returns a fresh handle.
func (d *Null) TimingEventCreate() (driver.Event, error) { return driver.Event(d.take(1)), nil }

// EventElapsed reports that no time has passed.
func (d *Null) EventElapsed(driver.Event, driver.Event) (time.Duration, error) { return 0, nil }

// ModuleLoad returns a fresh handle for any image.
func (d *Null) ModuleLoad(driver.Image) (driver.Module, error) { return driver.Module(d.take(1)), nil }

// ModuleUnload does nothing.
func (d *Null) ModuleUnload(driver.Module) error { return nil }

// ModuleFunction returns a fresh handle for any name.
func (d *Null) ModuleFunction(driver.Module, string) (driver.Function, error) {
	return driver.Function(d.take(1)), nil
}

// Launch does nothing.
func (d *Null) Launch(*driver.Launch) error { return nil }

// PoolCreate returns a fresh handle.
func (d *Null) PoolCreate(driver.PoolConfig) (driver.Pool, error) { return driver.Pool(d.take(1)), nil }

// PoolDestroy does nothing.
func (d *Null) PoolDestroy(driver.Pool) error { return nil }

// PoolStats reports an empty pool.
func (d *Null) PoolStats(driver.Pool) (driver.PoolStats, error) { return driver.PoolStats{}, nil }

// PoolTrim does nothing.
func (d *Null) PoolTrim(driver.Pool, uint64) error { return nil }
