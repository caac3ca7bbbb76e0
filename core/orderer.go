package core

// Orderer is a backend that can say what is ordered before what. It is for
// inspection, found with [Find].
type Orderer interface {
	// Unordered lists the outstanding uses of the block that an access on
	// stream would race with if it were enqueued now, without waits: those
	// that conflict with it and that neither stream order nor a queued wait
	// nor what the host has seen done puts before it. An access on the
	// allocation's own readiness counts as a use with launch number 0. It
	// makes no device call, and is nil for a block or stream it does not know.
	Unordered(id BlockID, stream StreamID, access Access) []UseRecord
}
