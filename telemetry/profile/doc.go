// Package profile serves who holds a device's memory as a pprof profile: bytes
// and objects by Go call stack, for `go tool pprof` and for every continuous
// profiler that scrapes pprof. [Handler] is mounted beside net/http/pprof,
// usually at /debug/pprof/gpumem:
//
//	go tool pprof http://localhost:6060/debug/pprof/gpumem
//	go tool pprof -diff_base=before.pb.gz after.pb.gz
//
// The root package's Runtime.ProfileHandler is that handler for its stack.
//
// # What is counted
//
// The sample types are those of Go's heap profile, so that tools find them:
// inuse_space, the default, and inuse_objects are what the device holds now,
// alloc_space and alloc_objects all that was ever allocated; the latter two
// are there for sources with [Allocations]. Bytes are as asked of the device:
// the red zones of a debug guard are in them.
//
// Sums are exact. Stacks are kept for some blocks only (those that a debug
// guard guards, hunts or samples by bytes, and every one of a MiB or more, while
// those that are not guarded nor hunted are at most 1600 a second); a block
// without one counts under the frame "unsampled". So at a moment when nothing
// is under way the in-use samples of each state add up to the Live, Pending
// and Quarantined of [core.Stats], and the allocated ones to everything that
// the device was asked for. Nothing is scaled up: a stack's figure is a lower bound of
// what it holds.
//
// What a pool has cached is in no block and so in no sample. A comment for each device
// says what its pool holds, and how much of that is cached and, of a pool of the
// runtime's own, fragmented: pprof prints it with -comments, and the text has it below
// its first line.
//
// # Labels
//
//	tag     the tag of the blocks; absent from the unsampled part of allocations
//	device  the device's ordinal
//	stream  the stream of the allocation, for what is in use
//	state   live, pending or quarantined, for what is in use
//
// In pprof, -tagfocus=state=live shows one of them and -tagroot=tag puts the
// tags above the stacks. Frames of the runtime's own layers at the inner end
// of a stack are left out: the leaf is the code that asked for memory. A
// profile has at most [MaxSamples] of tag, stack, stream and state; what goes
// beyond is summed up by state under the tag "other".
//
// # Cost
//
// Nothing is paid for on the path of a launch. Taking a profile lists the
// blocks as [core.Inspector] does, about a microsecond a block, and makes no
// device call; profiles are taken one at a time. Who can read it can read the
// program's structure: mount it where net/http/pprof is mounted, on the
// loopback interface by default.
package profile
