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

// StreamBooks is a backend that knows its streams. It is for inspection, found
// with [Find]; it makes no device call and waits for none.
type StreamBooks interface {
	// Leased reports whether work can be enqueued under the id now.
	Leased(stream StreamID) bool
	// Adopted reports whether the stream, or the one that the block was allocated
	// on, is of somebody else who brought it under an id. What orders such streams
	// the backend sees only as far as it did that itself.
	Adopted(id BlockID, stream StreamID) bool
}
