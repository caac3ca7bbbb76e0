package cuda

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// block is the record of one allocation. Records are pooled, so whoever finds one
// by its generation must compare the generation again under the lock.
type block struct {
	node blocktable.Node[block]

	mu sync.Mutex
	// history is the launches announced on the block and its outstanding uses.
	history fence.History
	stream  *stream
	core    core.Block
	// freeRequested is when the free of a retired block was requested, whatever
	// has delayed it since.
	freeRequested core.Instant
	// poisoned: an access could not be fenced, so the memory can be neither
	// used nor reused.
	poisoned bool
	// withheld: its owner has given it back, and a guard keeps it.
	withheld bool
	// waits is what the free of a retired block waits for before a stream's queue
	// of frees has it: waitsForLaunches or waitsForStream.
	waits freeState
	// mapped is the size of an isolated block's mapping, 0 for one of the pool.
	mapped uint64
	_      [24]byte // blocks share no cache line
}

var blocks = sync.Pool{New: func() any { return &block{history: fence.NewHistory()} }}

// fill makes b the record of a fresh allocation. It takes the lock: somebody
// who found the block that it was before may be looking at it.
func (b *block) fill(s *stream, c core.Block, withheld bool, ready fence.Access) {
	b.mu.Lock()
	b.stream, b.core, b.poisoned, b.withheld, b.mapped = s, c, false, withheld, 0
	b.history.Begin(ready)
	b.mu.Unlock()
}

// fillMapped is fill for an isolated block, which nobody has to wait for.
func (b *block) fillMapped(s *stream, c core.Block, withheld bool, mapped uint64) {
	b.mu.Lock()
	b.stream, b.core, b.poisoned, b.withheld, b.mapped = s, c, false, withheld, mapped
	b.history.Begin()
	b.mu.Unlock()
}

// isIsolated reports whether the block is a mapping of its own and not of the pool.
func (b *block) isIsolated() bool { return b.mapped > 0 }

// check says whether id names this block and it is live; b.mu must be held.
func (b *block) check(op string, id core.BlockID, stream core.StreamID) error {
	switch {
	case b.core.ID.Generation != id.Generation:
		return &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: core.Freed}
	case b.poisoned:
		return &core.DriverError{Op: op, Name: "FENCEPOST_POISONED", Text: "an earlier use of the block could not be fenced",
			Detail: "block " + id.String() + " can be neither used nor reused until the device is reset"}
	case b.core.State != core.Live:
		return &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: b.core.State, Tag: b.core.Tag}
	case id.Ptr-b.core.ID.Ptr >= b.core.Bytes:
		return &core.StreamMisuseError{Op: op, Block: id, Stream: stream, Reason: "the pointer does not lie inside the block of that generation"}
	}
	return nil
}
