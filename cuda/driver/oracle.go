package driver

import "github.com/fencepost-gpu/fencepost/core"

// Oracle is what a device offers that judges accesses by the blocks that they lie in, and by
// what launches declare, as the simulated one does. It is told by calls that enqueue nothing,
// do not block and cannot fail. They are safe for concurrent use.
type Oracle interface {
	// BlockBegins tells that the bytes at ptr, which are mapped, are a block of a runtime from
	// now on, in the order of s: what is enqueued later may use it.
	BlockBegins(ptr, bytes uint64, s Stream)
	// BlockEnds tells that the life of the block at ptr ends here in the order of s, and where
	// the events are recorded now: what was enqueued before is the last that may use it. Of a block
	// that the driver allocated it is told if the driver hears of the free later.
	BlockEnds(ptr uint64, s Stream, behind ...Event)
	// BlockIsOwned tells which part of the block at ptr a program has from now on: bytes at owned,
	// or none if bytes is 0. Launches must declare what they use of that part. The rest of the block
	// belongs to layers, which pad or round up: an access of the program's there is out of bounds.
	// Until this is told, the program has all of a block that BlockBegins told of. A launch need not
	// declare what it uses of a block that the driver allocated or mapped.
	BlockIsOwned(ptr, owned, bytes uint64)
	// BlockIsWithheld tells that the owner of the block at ptr has given it back, and a layer keeps
	// it, or an unmap is to come: what the program enqueues from now on and touches it comes after
	// the free.
	BlockIsWithheld(ptr uint64)
	// LaunchBegins tells that all that is enqueued on s from now on is work of a launch, until
	// [Oracle.LaunchEnds] of the same number. Of blocks of a runtime it touches what uses says,
	// which is not kept. Where several launches are open on a stream each may be whose work it is.
	LaunchBegins(s Stream, launch core.UseRecord, uses []Declared)
	// UseRecorded tells that work which was enqueued on s before, and is of no launch, uses a block
	// ([core.Resource.RecordUse]): no launch that was open there need declare it.
	UseRecorded(s Stream, use Declared)
	// LaunchEnds tells that nothing more is enqueued for the launch.
	LaunchEnds(s Stream, id uint64)
}

// Declared is a range of addresses, and what a launch declares to do there.
type Declared struct {
	Ptr, Bytes uint64
	Access     core.Access
}

// OracleOf returns the oracle of the device beneath every [Wrapper] of d, nil if it has none.
// It makes no device call.
func OracleOf(d Driver) Oracle {
	o, _ := Unwrap(d).(Oracle)
	return o
}
