// Package cuda puts the contract of package core on a device: stream leases,
// events, resources, typed memory and kernels, over the seam of package
// driver. It holds no code of a particular driver, so all of it runs the same
// on a GPU and on the simulated device.
//
// # How uses are fenced
//
// Each physical stream keeps a vector clock: for every other stream, the
// newest operation there that it is already ordered after, transitively. A
// block keeps every outstanding access that no other covers: at most one
// write and one read of each stream. PrepareUse queues a wait only for an access on
// another stream that the clock does not cover. FinishUse records one pooled
// event for the whole launch, with a copy of the clock; whoever looks at a block
// next drops the accesses that this clock covers.
//
// Two steps are atomic under a stream's own lock: a wait is queued and the
// clock joined; a sequence number is taken, the event recorded and the clock
// copied. Allocations and frees are queued under that lock, too. A deferred record
// is made under the event's own lock and the stream's gate. No block is locked while
// the driver is called.
package cuda
