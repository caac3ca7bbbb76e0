package oplog

import "github.com/fencepost-gpu/fencepost/core"

// Step is a copy, the wait until a stream is done, or the wait for memory: what takes a
// request's time beside the operations of a [core.Resource].
type Step struct {
	// Stream is the copy's, or the one that is waited for.
	Stream core.StreamID
	// Direction is where a copy goes: "to_device", "to_host", "on_device" or
	// "from_peer"; empty for a wait. The driver is given the copy in the step, and on
	// a GPU may do it meanwhile, as it does where the host's memory is not page-locked.
	Direction string
	// Memory is set for a wait until the device has come to memory that is freed.
	Memory bool
	// Bytes is how much is copied, or how much memory is asked for.
	Bytes uint64
}
