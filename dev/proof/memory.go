package proof

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
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
	// refused for want of memory: then only what has begun is ended. Nothing is served at once: all is prepared.
	OwnPool
	// OwnPoolQuickly is that as it comes: allocations and frees that can be are served at once.
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

// entry is an outermost layer over a backend, which does nothing but count what is served at once and
// what is prepared, or has everything prepared. It counts for one goroutine at a time.
type entry struct {
	core.Resource
	path     *path.Path
	prepares bool
	moves    Moves
}

// enter returns an entry over a backend.
func enter(backend core.Resource, prepares bool) *entry {
	e := &entry{Resource: backend, prepares: prepares}
	e.path = path.Over(backend, false).Extend(e, counting{entry: e}, e.ordinary())
	return e
}

// ordinary is the entry's share of ordinary operations, which it counts; nil if all are prepared.
func (e *entry) ordinary() *path.Ordinary {
	if e.prepares {
		return nil
	}
	return &path.Ordinary{
		Allocated: func(*path.Step) {
			e.moves.QuickAllocations++
			e.moves.Again++
		},
		Freed: func(*path.Step) { e.moves.QuickFrees++ },
	}
}

// Allocate allocates.
func (e *entry) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	err = e.path.Allocate(ctx, nil, &req, &b)
	return b, err
}

// Deallocate frees.
func (e *entry) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	err = e.path.Deallocate(ctx, nil, &id, &b)
	return b, err
}

// counting is the entry's share of the path.
type counting struct {
	path.Simple
	*entry
}

// Allocate counts.
func (c counting) Allocate(o *path.Op) bool {
	return c.count(o, c.path.Below.Layer.Allocate, &c.moves.QuickAllocations, &c.moves.SlowAllocations)
}

// Deallocate is Allocate for a free.
func (c counting) Deallocate(o *path.Op) bool {
	return c.count(o, c.path.Below.Layer.Deallocate, &c.moves.QuickFrees, &c.moves.SlowFrees)
}

func (c counting) count(o *path.Op, below func(*path.Op) bool, atOnce, declined *uint64) bool {
	o.NotAtOnce = o.NotAtOnce || c.prepares
	ok := below(o)
	switch {
	case !ok:
		*declined++
	case o.AtOnce:
		*atOnce++
	}
	return ok
}
