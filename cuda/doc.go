// Package cuda puts the contract of package core on a device: stream leases,
// resources, typed memory and kernels, over the seam of package
// driver. It holds no code of a particular driver, so all of it runs the same
// on a GPU and on the simulated device.
//
// Which stream waits for which work is decided in internal/fence. What is here finds
// the blocks of a launch, announces the launch on each, and keeps what the engine does not
// know of: blocks with their memory, leases, queued frees, and the books.
//
// # What is where
//
//   - [PoolResource]: the default backend: stream-ordered, with a pool of its own over mapped pages
//   - [AsyncResource]: stream-ordered over the driver's pool, where the device maps no memory;
//     [DirectResource]: synchronous, without use tracking
//   - [StreamPool], [Lease]: streams, and the right to enqueue on one; [readings.StreamInfo], [readings.StreamStats],
//     [readings.LeaseInfo]: their state, for display
//   - [MemoryManager], [Slice], [Column]: typed memory of the device; [HostBuffer]: page-locked memory of
//     the host
//   - [CopyToDevice], [CopyToHost], [CopyOnDevice], [CopyFromPeer], [Memset], [Download]: fenced copies
//   - [Module], [Kernel], [Grid]: kernels; [Graph]: captured work that is launched as one
//   - [NewDeviceOps]: the guard's work on the device
package cuda
