package proof

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/quick"
)

// Memory is where the blocks of programs come from.
type Memory uint8

const (
	// DriverPool is the driver's pool, by [cuda.AsyncResource].
	DriverPool Memory = iota
	// Isolated is that with mappings of the blocks' own. An unmap lies on no stream, so it is looked
	// at when it is made, and the oracle is not asked: verdicts are empty.
	Isolated
	// OwnPool is [cuda.PoolResource], for programs whose allocations have sizes. An allocation may be
	// refused for want of memory: then only what has begun is ended.
	OwnPool
	// OwnPoolQuickly is that with allocations and frees by the quick path, as the outermost layer
	// goes, and by the ordinary way what that declines.
	OwnPoolQuickly
)

// OwnPools are both ways over the runtime's own pool.
var OwnPools = [...]Memory{OwnPoolQuickly, OwnPool}

// String is such as "own pool".
func (m Memory) String() string {
	return [...]string{"driver pool", "isolated", "own pool", "own pool, quickly"}[m]
}

// IsOwnPool reports whether it is the runtime's own pool.
func (m Memory) IsOwnPool() bool { return m >= OwnPool }

// Backend is a resource of the fence engine.
type Backend interface {
	core.Resource
	Subscribe(core.Listener)
	TrimPool(keep uint64) error
	Close(context.Context) error
}

// entry is an outermost layer over a backend, which does nothing but enter the quick path, and
// goes the ordinary way if that declines. It counts for one goroutine at a time.
type entry struct {
	core.Resource
	path  *quick.Path
	moves Moves
}

// enter returns an entry over a backend that has a quick path.
func enter(backend core.Resource) *entry {
	below := quick.Of(backend)
	e := &entry{Resource: backend}
	e.path = below.Extend(e, below.Layer)
	return e
}

// Allocate allocates by the quick path, or by the backend.
func (e *entry) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	if e.path.Allocate(ctx, &req, &b) {
		e.moves.QuickAllocations++
		return b, nil
	}
	e.moves.SlowAllocations++
	return e.Resource.Allocate(ctx, req)
}

// Deallocate frees by the quick path, or by the backend.
func (e *entry) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	if e.path.Deallocate(ctx, &id, &b) {
		e.moves.QuickFrees++
		return b, nil
	}
	e.moves.SlowFrees++
	return e.Resource.Deallocate(ctx, id)
}
