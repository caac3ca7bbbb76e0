// Package sim is a CUDA device in pure Go: the embedded default where no GPU
// is at hand, and the bench on which stream-ordered programs are proven. A
// [Device] is a [driver.Driver] whose memory holds real bytes, whose streams
// are real queues and whose kernels are Go functions.
//
// # What it keeps of CUDA
//
// Streams run their operations in order and know nothing of each other except
// through events. A wait or query of an event uses the record that is current
// at the call; an event never recorded is complete; recording again moves no
// earlier wait; destroying an event or a stream leaves queued work valid.
// Stream 0 is an ordinary stream here, without the legacy stream's implicit
// order: streams of StreamCreate are non-blocking ones, so none would see it.
//
// Pools reuse addresses as eagerly as stream order allows, newest free first,
// so that a missing fence shows: memory freed on a stream is taken again at
// once by that stream, and by another as soon as that one is ordered after the
// free, or the free has been executed. Memory is never zeroed. Each pool
// search is bounded (the newest 64 of a size class), and memory that is
// pending on unordered streams is not waited for: the request gets
// CUDA_ERROR_OUT_OF_MEMORY. The reuse policies of a pool can be disabled, to
// see what a program would get without one. The device maps memory in granules of 2 MiB.
//
// # Mapped memory
//
// MemReserve hands out addresses of a range of their own, upwards, so that what
// was given back comes again late. Where nothing is mapped an access is an
// illegal address: the context is lost, and the finding names the block that
// was there last. An unmap waits for nothing, as on a device; the oracle judges
// it as a free by the host. Work that was queued before it and reaches what was
// mapped there since is reported too. Memory is at one place at a time; it reads
// as zero at first, and as noise when it is mapped again. Mappings of one reserved
// range that lie in a row are one memory: no bound is between them. Where a program
// tells of the blocks that it cuts out of them ([Device.BlockBegins]), those are judged
// instead, as a pool's are, and that each begins after the end of what was there.
//
// # Capture
//
// What is enqueued on a stream that captures is kept and not run. A wait for an
// event of the capture draws another stream in, and waits, queries and
// synchronisations that CUDA prohibits get its codes and invalidate the capture.
// A launched graph is its operations in the order of their calls, enqueued on
// the stream of the launch. Not there are memory nodes (allocations and frees are
// refused in a capture), graphs in graphs, copies between devices, and
// capture modes: every thread is in the relaxed one, in which package libcuda
// makes its calls.
//
// # Two clocks
//
// Free-running (the default): a stream with work has one goroutine, which
// ends when the queue is empty. Frees, allocations and event records behind
// which nothing is queued complete at once.
//
// Seeded ([Seeded]): no goroutines. Any operation whose predecessors are done
// may run next, and a generator seeded by the caller picks it. Calls make a
// few random steps of progress, synchronising calls as many as they need, so
// polling always ends. The same seed with the same calls from one goroutine
// gives the same schedule.
//
// # Core dumps
//
// With [Config.CoreDump] a kernel that touches memory which is not mapped is dumped as by CUDA's driver
// (kernels with their parameters, the address, how it was accessed), all of it before the context is lost. A twin is one thread:
// the first byte that is not there is its access, of the widest instruction that fits. That the driver may say meanwhile of the
// kernel that it is done can be injected ([Device.FalseSuccess]), and [Device.WatchFaults] is what helps.
//
// # The oracle
//
// Vector clocks follow every call: stream order, the event records that waits
// join, and what the host has learned from successful queries and
// synchronisations (the host is one clock for all goroutines: what one has
// seen done is done). Whatever the schedule happened to be, [Device.Findings]
// reports accesses that no order forbids to collide, and blocks touched
// outside their life. The oracle judges the bytes that an operation really
// touched; a kernel that touches more than it declares is a finding too,
// and so is work of a launch that touches what the launch did not declare to its runtime.
// Page-locked memory of the host is judged like the device's, whether kernels or copies
// reach it. Go's memory is not.
//
// An access over a block's bound is about the block from whose pointer it was
// made, whatever it hit: a live neighbour, a freed one, or nothing. Whose pointer
// it was is read from what the launch declares to its runtime, from where the range
// begins, from the arguments of the launch, and from what the kernel declares. It
// is no access of the block that it hit, so one bug is one finding.
//
// # Peers
//
// Devices of one process may copy from and wait for one another, whatever
// clocks they run by; a seeded one is driven by the callers that wait for it. What a
// wait teaches goes from oracle to oracle, through any number of devices, and
// so does what the host learns. A copy is judged at both ends: by the
// destination's oracle as a write, by the source's as a read in its own clock.
// Addresses of different ordinals differ. Kernels reach their own device only.
package sim
