package quick

import (
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/listeners"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// Lane is what a physical stream owns on the host: its lock, the operation that is served
// under it, and a part for each layer. Leases come and go on it. The zero value is
// ready for use; it must not be copied.
type Lane struct {
	mu sync.Mutex
	op Op
	// parts are set once each, by the layers that have a path, under the lock.
	parts [maxParts]any
}

// maxParts is for how many layers there is room, the backend among them.
const maxParts = 8

// Lock takes the lane's lock, which is that of its stream.
func (l *Lane) Lock() { l.mu.Lock() }

// TryLock is Lock if nobody has it, and reports whether it was taken.
func (l *Lane) TryLock() bool { return l.mu.TryLock() }

// Unlock gives the lock back.
func (l *Lane) Unlock() { l.mu.Unlock() }

// Op is an allocation or a free on its way through the layers.
type Op struct {
	// Lane is the one whose lock is held.
	Lane *Lane
	// Request is what is to be allocated, normalized. A layer that changes it and is
	// declined below undoes that.
	Request core.Request
	// ID is the block to be freed.
	ID core.BlockID
	// Block is what the backend made of it, once it has served the operation.
	Block core.Block
	// Record is the block's, in a free from the beginning and in an allocation once the backend has
	// served it. Engine is the backend's own of it.
	Record *path.Record
	Engine any
	// Lacks is set by a layer that declines if it may not when it has been prepared.
	Lacks Preparer
	// Hear are the listeners of the backend, and of a layer that keeps its own: those without a path
	// hear of a freed block when the lane is not locked any more.
	Hear [2]*listeners.List
	// After, if the backend sets it, is called with Block when the lane is not locked any more.
	After func(core.Block)
	// Began is when the caller came, Ended when the backend had served it.
	Began, Ended monotime.Instant
}

// Took is how long the caller has waited, less the way back through the layers.
func (o *Op) Took() time.Duration { return o.Ended.Since(o.Began) }

// Part is what a layer keeps in the lane, nil if it was never set.
func (l *Lane) Part(number int) any { return l.parts[number] }

// SetPart sets it. The lock must be held, or nobody else know of the lane.
func (l *Lane) SetPart(number int, part any) { l.parts[number] = part }
