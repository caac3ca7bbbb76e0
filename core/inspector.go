package core

import "time"

// Inspector is what a stack of resources knows of its blocks and its streams,
// beyond [Resource.State] and [Resource.Stats]. Nothing in it changes anything,
// makes a device call, or waits for one. It is safe for concurrent use.
//
// The backend makes it, and a decorator returns its upstream's unless it knows
// better: a guard, for one, knows in which state callers have a block.
type Inspector interface {
	// Blocks calls yield for each block that is not released, until yield
	// returns false. Blocks that come or go meanwhile may be missed.
	Blocks(yield func(BlockInfo) bool)

	// Remember is what is known of one block, which may have been freed a while
	// ago; false if that is no more than State says.
	Remember(id BlockID) (info BlockInfo, ok bool)

	// Unordered lists the outstanding uses of the block that an access on
	// stream would race with if it were enqueued now, without waits: those
	// that conflict with it and that neither stream order nor a queued wait
	// nor what the host has seen done puts before it. An access on the
	// allocation's own readiness counts as a use with launch number 0. There are
	// none for a block or stream it does not know. known is false if the backend
	// does not follow what is ordered.
	Unordered(id BlockID, stream StreamID, access Access) (racing []UseRecord, known bool)

	// InFlight lists launches that were finished and that the device is not
	// known to have completed: the newest of each stream, then the second of
	// each, and so on. It may leave some out.
	InFlight() []UseRecord

	// Leased reports whether work can be enqueued under the id now; true, too, if
	// the backend does not know.
	Leased(stream StreamID) bool

	// Adopted reports whether the stream, or the one that the block was allocated
	// on, belongs to other code, which brought it under an id. What orders such streams
	// the backend sees only as far as it did that itself.
	Adopted(id BlockID, stream StreamID) bool

	// IsolationGranularity is the unit in bytes, a power of two, in which an
	// isolated block takes memory of the device; 0 without [Isolation]. A layer
	// that asks for [Request.Isolated] rounds Bytes up to it, so that the budgets
	// below charge what the device gives.
	IsolationGranularity() uint64
}

// BlockInfo is what a layer knows of one block.
type BlockInfo struct {
	Block Block
	// AllocStack is where it was allocated, FreeStack where it was freed if it
	// was, as far as they were kept.
	AllocStack, FreeStack Stack
	// AllocSpan is the span in force when it was allocated, if its stack was kept.
	AllocSpan SpanContext
	// Uses are its last declared uses, newest first, if they were kept.
	Uses []UseRecord
	// Allocated is when it was allocated, Freed when its owner gave it back; zero if that was not kept.
	Allocated, Freed time.Time
}

// uninspected knows nothing.
type uninspected struct{}

func (uninspected) Blocks(func(BlockInfo) bool)                             {}
func (uninspected) Remember(BlockID) (BlockInfo, bool)                      { return BlockInfo{}, false }
func (uninspected) Unordered(BlockID, StreamID, Access) ([]UseRecord, bool) { return nil, false }
func (uninspected) InFlight() []UseRecord                                   { return nil }
func (uninspected) Leased(StreamID) bool                                    { return true }
func (uninspected) Adopted(BlockID, StreamID) bool                          { return false }
func (uninspected) IsolationGranularity() uint64                            { return 0 }
