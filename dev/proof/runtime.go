package proof

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
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

// Runtime is the production code over a device: its streams and its resource.
type Runtime struct {
	Streams *cuda.StreamPool
	Backend Backend
	// Front is where blocks are allocated and freed: the backend, or Entry over it, which enters the
	// quick path and is nil otherwise.
	Front core.Resource
	Entry *Entry
}

// Backend is a resource of the fence engine.
type Backend interface {
	core.Resource
	Subscribe(core.Listener)
	TrimPool(keep uint64) error
	Close(context.Context) error
}

// NewRuntime returns a runtime over a device.
func NewRuntime(d driver.Driver, over Memory, cfg cuda.StreamPoolConfig) (*Runtime, error) {
	rt := &Runtime{}
	var err error
	if rt.Streams, err = cuda.NewStreamPool(d, cfg); err != nil {
		return nil, err
	}
	if over.IsOwnPool() {
		rt.Backend, err = cuda.NewPoolResource(d, rt.Streams, cuda.PoolConfig{Limit: PoolPages * device.PageBytes, ReapInterval: -1})
	} else {
		rt.Backend, err = cuda.NewAsyncResource(d, rt.Streams, cuda.AsyncConfig{ReapInterval: -1})
	}
	if err != nil {
		return nil, err
	}
	if rt.Front = rt.Backend; over == OwnPoolQuickly {
		rt.Entry = Enter(rt.Backend)
		rt.Front = rt.Entry
	}
	return rt, nil
}

// Quickly is how many operations went by the quick path, and were declined.
func (rt *Runtime) Quickly() Quickly {
	if rt.Entry == nil {
		return Quickly{}
	}
	return rt.Entry.quickly
}
