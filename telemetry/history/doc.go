// Package history writes the history of a device's memory for other people's
// viewers: as a trace for Perfetto and Chrome, and as a memory snapshot for
// PyTorch's memory_viz. The history is that of decorators/logging: its ring,
// or a log that was read back. [Handler] serves it, usually at
// /debug/gpumem/history; `fencepost history` converts a log.
//
// # Perfetto
//
// A trace in the JSON trace event format. Each device is a process. Each
// stream has a track with its launches, a slice from the prepare to the end
// of the finish, and one with allocations, frees and recorded uses; what names
// no stream is on the track "host". Where slices of a track overlap, because
// several goroutines use the stream, there are more lanes: "stream 3 (2)". An
// arrow leads from what was waited for, at the moment at which its event was
// recorded, to the launch that waited. The times of these tracks are those of the host: a slice
// shows when work was enqueued. When the device did it is on "stream 3 on the device", for
// the launches that are timed: what it waited for and its work, with arrows that end where the wait really
// ended.
//
// "live bytes" and "pending bytes" are counters, exact after each operation.
// Refusals are instants on their stream, findings on their device. Launches,
// arrows and pending bytes need a log of the level Uses. A log lies below the
// guard, and shows what the device was asked: what a guard holds back is live
// to it. "quarantined bytes" is how much of it that is, known for the end of
// the history only, and only where the source has the resources.
//
// # PyTorch
//
// A pickle with what torch.cuda.memory._dump_snapshot writes:
//
//	alloc           an allocation, at its end
//	free_requested  a deallocation, at its beginning
//	free_completed  the release, or the moment at which the device passed the
//	                memory on in stream order before the release was known; at
//	                once in a log that has no releases
//	oom             a refused or failed request; device_free is what the budget
//	                had left
//
// The category of each entry is its tag, and so is the innermost frame, in
// front of the stack of the allocation where that is kept, which is for blocks
// that are still held. Segments are the ranges of addresses that the history
// has seen, in units of 2 MiB: where the driver's pool has its own it does
// not tell. So reserved figures of PyTorch's scripts are of addresses seen. A
// block that waits, or that a guard holds back, is active_pending_free; of the
// latter the log does not say when it was freed: free_requested is at the end.
//
// # A history that has lost its beginning
//
// A block that is freed and was not allocated in the history was there from
// its beginning, and so is one that a resource lists and the history does not
// know. A stripe of a ring may have lost an allocation that is younger than
// others' records: where two such blocks have an address in common, the later
// one is taken to be allocated just before its free. The same holds for a block
// whose addresses an older one has in the history. If the history has no free of the
// younger one, its allocation is at the end. An older one that still has its addresses
// is freed there, too.
package history
