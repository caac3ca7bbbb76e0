// Package driver is the seam between Fencepost and a device: the few dozen
// driver calls that the runtime uses, as one interface. Package sim
// implements it in pure Go.
//
// Every method is safe for concurrent use. A method whose name ends in Async
// and those that take a [Stream] enqueue work and return at once; the methods
// that may block say so. Errors are *[core.DriverError] with the CUDA
// driver's codes and names (see [NewError]).
//
// The semantics are those of the CUDA driver API, sections "Stream Ordered
// Memory Allocator", "Stream Management" and "Event Management".
package driver

import "time"

// Stream is a driver's handle of a stream. Handles are reused by the driver
// after StreamDestroy. The zero handle is the legacy default stream.
type Stream uint64

// Event is a driver's handle of an event. The zero handle is no event.
type Event uint64

// Pool is a driver's handle of a memory pool. The zero handle is the device's
// default pool.
type Pool uint64

// Module is a driver's handle of loaded device code.
type Module uint64

// Function is a driver's handle of a kernel.
type Function uint64

// Graph is a driver's handle of captured work that can be launched. The zero
// handle is no graph.
type Graph uint64

// MemHandle is a driver's handle of device memory that has no address of its
// own. The zero handle is no memory.
type MemHandle uint64

// Driver is one device as its driver presents it.
type Driver interface {
	// Ordinal is the device's number, from 0.
	Ordinal() int
	// Properties describes the device. It makes no device call after the
	// first.
	Properties() (Properties, error)
	// MemInfo returns the free and total memory of the device in bytes.
	MemInfo() (free, total uint64, err error)
	// Synchronize blocks until all work of the device's context is done.
	Synchronize() error
	// Close destroys the context. Handles are invalid afterwards.
	Close() error

	// MemAlloc allocates bytes of device memory, in no stream's order. It
	// may block.
	MemAlloc(bytes uint64) (ptr uint64, err error)
	// MemFree frees memory of MemAlloc after all work of the device. It may
	// block.
	MemFree(ptr uint64) error
	// MemAllocAsync allocates bytes from pool in the order of s.
	MemAllocAsync(bytes uint64, pool Pool, s Stream) (ptr uint64, err error)
	// MemFreeAsync frees ptr in the order of s. Memory of MemAlloc may be
	// freed with it too.
	MemFreeAsync(ptr uint64, s Stream) error
	// HostAlloc allocates page-locked host memory that kernels reach through
	// its DevicePtr.
	HostAlloc(bytes uint64) (HostMemory, error)
	// HostFree frees memory of HostAlloc.
	HostFree(HostMemory) error

	// MemReserve reserves a range of addresses with nothing behind it: an
	// access there is an illegal address. bytes is a multiple of
	// Properties.MapGranularity, and so is the address. This call and the six
	// below are for devices whose granularity is not zero; they are calls of
	// the host, in no stream's order, and may block. They may be made while
	// kernels run, and nothing changes for work on other addresses. CUDA
	// promises of no call that it does not wait for the device; beside kernels
	// on an H200 none of these does.
	MemReserve(bytes uint64) (ptr uint64, err error)
	// MemUnreserve gives back a range of MemReserve, whole and with nothing
	// mapped there. Its addresses may come again.
	MemUnreserve(ptr, bytes uint64) error
	// MemCreate takes memory from the device, bytes being a multiple of the
	// granularity. Its content is undefined.
	MemCreate(bytes uint64) (MemHandle, error)
	// MemRelease gives the handle back. The memory goes back to the device
	// with it, or when it is unmapped if it still is mapped.
	MemRelease(h MemHandle) error
	// MemMap puts the memory of h, all of it, at a reserved range or a part of
	// one, where nothing is mapped. It must not be touched before MemAccess.
	// Memory is mapped at one place at a time. While its handle is kept it may
	// be mapped again after an unmap, there or elsewhere; its content is
	// undefined then.
	MemMap(ptr, bytes uint64, h MemHandle) error
	// MemAccess lets the device read and write a mapped range: one mapping or
	// several whole ones in a row, within one reserved range. To work that is
	// enqueued they are one memory. ("The range must be a fully mapped
	// address range containing all allocations created by cuMemMap /
	// cuMemCreate": CUDA driver API, cuMemSetAccess.)
	MemAccess(ptr, bytes uint64) error
	// MemUnmap takes a mapped range, as MemAccess takes it, from its addresses,
	// which stay reserved and may be mapped again. ("cuMemUnmap cannot unmap a
	// sub-range of an address range mapped by cuMemCreate / cuMemMap": CUDA
	// driver API. NVIDIA's sample vectorAddMMAP unmaps several mappings by one
	// call.) It does not wait for work that is queued, which faults when it gets
	// there, or reaches what is mapped there by then: the caller knows that the
	// device is done with the range. Of a reserved range that is not mapped
	// CUDA promises no error: some versions of its driver return none. Nor does
	// it say what an error leaves mapped of several mappings.
	MemUnmap(ptr, bytes uint64) error

	// MemsetAsync sets n bytes at ptr to value.
	MemsetAsync(ptr uint64, value byte, n uint64, s Stream) error
	// CopyToDeviceAsync copies src to dst. src must stay unchanged and
	// reachable until the copy has been done.
	CopyToDeviceAsync(dst uint64, src []byte, s Stream) error
	// CopyToHostAsync copies len(dst) bytes from src. dst must stay
	// untouched and reachable until the copy has been done.
	CopyToHostAsync(dst []byte, src uint64, s Stream) error
	// CopyOnDeviceAsync copies n bytes from src to dst.
	CopyOnDeviceAsync(dst, src, n uint64, s Stream) error
	// CopyFromPeerAsync copies n bytes from src on peer's device to dst on
	// this one, in the order of s, a stream of this device. No stream of peer
	// is ordered with it: see StreamWaitPeer. peer may be wrapped, here and
	// below (see Unwrap); one that cannot be reached is InvalidValue.
	CopyFromPeerAsync(dst uint64, peer Driver, src, n uint64, s Stream) error

	// StreamCreate makes a stream that does not synchronise with the legacy
	// default stream.
	StreamCreate() (Stream, error)
	// StreamDestroy gives the handle back. Work that is queued still runs.
	StreamDestroy(Stream) error
	// StreamQuery reports whether all work of s is done.
	StreamQuery(Stream) (done bool, err error)
	// StreamSynchronize blocks until all work of s is done.
	StreamSynchronize(Stream) error
	// StreamWait makes later work of s wait for the record of e that is
	// current at this call; for an event never recorded it does nothing.
	StreamWait(s Stream, e Event) error
	// StreamWaitPeer makes later work of s, a stream of this device, wait for
	// the record of e, an event of peer's, that is current at this call; for
	// an event never recorded it does nothing.
	StreamWaitPeer(s Stream, peer Driver, e Event) error

	// StreamBeginCapture makes what is enqueued on s from now on be recorded
	// in a graph instead of run. No call of this interface is disturbed by it
	// that does not touch the capture, on whatever thread it is made; calls
	// that CUDA prohibits fail with its codes, and invalidate the capture.
	StreamBeginCapture(s Stream) error
	// StreamEndCapture ends the capture that began on s and returns what was
	// captured, ready to be launched; the caller destroys it. An error yields
	// no graph; [CaptureInvalidated] and [CaptureUnjoined] end the capture all
	// the same. It may block.
	StreamEndCapture(s Stream) (Graph, error)
	// StreamCapturing reports whether s captures: its own capture, one that it
	// was drawn into by a wait, or one that is invalidated and not ended. For
	// the legacy default stream it is [CaptureImplicit] while a stream that
	// synchronises with that one captures.
	StreamCapturing(s Stream) (bool, error)
	// GraphLaunch enqueues all of the work of g on s, behind g's last launch.
	// Launches of one graph must not be concurrent calls.
	GraphLaunch(g Graph, s Stream) error
	// GraphDestroy gives the handle back. Launches that are queued still run.
	GraphDestroy(g Graph) error

	// EventCreate makes an event without timing.
	EventCreate() (Event, error)
	// EventDestroy gives the handle back. Waits already queued stay.
	EventDestroy(Event) error
	// EventRecord records in e the work enqueued on s so far.
	EventRecord(e Event, s Stream) error
	// EventQuery reports whether the current record of e is done; an event
	// never recorded is.
	EventQuery(Event) (done bool, err error)
	// EventSynchronize blocks until the current record of e is done.
	EventSynchronize(Event) error
	// TimingEventCreate makes an event with timing: the device notes when it comes to a record
	// of it. Such a record takes the host and the device longer.
	TimingEventCreate() (Event, error)
	// EventElapsed is how long after the current record of from the device came to that of to,
	// less than zero if it came to that before. Both are events with timing, or the error is
	// [InvalidHandle]; it is [NotReady] while a record is not done. It does not block. CUDA
	// computes it in milliseconds of single precision: of 4 s it is right within 0.24 µs.
	EventElapsed(from, to Event) (time.Duration, error)

	// ModuleLoad loads device code. It may block.
	ModuleLoad(Image) (Module, error)
	// ModuleUnload unloads it.
	ModuleUnload(Module) error
	// ModuleFunction looks a kernel up by its name.
	ModuleFunction(m Module, name string) (Function, error)
	// Launch enqueues a kernel. l.Args are copied before it returns.
	Launch(l *Launch) error

	// PoolCreate makes a memory pool.
	PoolCreate(PoolConfig) (Pool, error)
	// PoolDestroy destroys it; memory still allocated from it stays valid
	// until it is freed.
	PoolDestroy(Pool) error
	// PoolStats reads the pool's attributes.
	PoolStats(Pool) (PoolStats, error)
	// PoolTrim gives unused memory back to the device down to keep bytes.
	PoolTrim(p Pool, keep uint64) error
}

// Properties describes a device.
type Properties struct {
	// Name is the device's, such as "NVIDIA H200".
	Name string
	// UUID identifies the device in every process, as nvidia-smi -L writes it:
	// "GPU-..." of a GPU, "MIG-..." of an instance of one. Empty if the driver
	// cannot say.
	UUID string
	// PCIBusID is where the device is, in lower case, such as "0000:3b:00.0";
	// the instances of a GPU share it. Empty if the driver cannot say.
	PCIBusID string
	// DriverVersion is the driver's, such as 13000 for CUDA 13.0; 0 on sim.
	DriverVersion int
	// ComputeMajor and ComputeMinor are the compute capability.
	ComputeMajor, ComputeMinor int
	// Multiprocessors is their number.
	Multiprocessors int
	// TotalBytes is the device's memory.
	TotalBytes uint64
	// MemoryPools says whether the Async allocation calls are supported.
	MemoryPools bool
	// MapGranularity is the unit in bytes, a power of two, in which addresses
	// are reserved and memory is mapped; 0 if the device or its driver cannot.
	MapGranularity uint64
}

// HostMemory is page-locked host memory.
type HostMemory struct {
	// Bytes is the memory as the host sees it. It does not lie in Go's heap.
	Bytes []byte
	// DevicePtr is its address for kernels.
	DevicePtr uint64
}

// PoolConfig configures a memory pool.
type PoolConfig struct {
	// ReleaseThreshold is how many bytes the pool keeps when the device is
	// idle; the largest value keeps all.
	ReleaseThreshold uint64
	// MaxBytes bounds the pool; 0 means the device's memory.
	MaxBytes uint64
	// Disable turns off reuse policies of the pool; zero keeps the driver's
	// default, all of them.
	Disable ReusePolicy
}

// PoolStats are a pool's attributes, in bytes. Used is what is allocated as
// asked for, and falls when a free is queued; Reserved is what the pool holds
// of the device's memory. High marks are since the pool was made.
type PoolStats struct {
	Used, UsedHigh, Reserved, ReservedHigh uint64
}

// Image is device code in the forms that the drivers take.
type Image struct {
	// Name is how the sim finds the Go kernels that stand in for the code.
	Name string
	// PTX is the code for a CUDA driver: PTX as text, with or without a final
	// zero byte, or a cubin or fatbin for its GPU. The sim does not look at it.
	PTX []byte
}

// Dim is a grid or block size; a zero counts as 1.
type Dim struct{ X, Y, Z uint32 }

// Launch describes one kernel launch.
type Launch struct {
	Function    Function
	Grid, Block Dim
	// SharedBytes is dynamic shared memory a block.
	SharedBytes uint32
	Stream      Stream
	Args        []Arg
}

// Arg is one kernel argument: its bits in the low Size bytes.
type Arg struct {
	Bits uint64
	Size uint8
	// Pointer says that it is a device address: a guard looks whose memory
	// that is. [Ptr] sets it.
	Pointer bool
}
