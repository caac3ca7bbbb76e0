package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// AsyncResource is the stream-ordered backend: memory from a pool of the
// driver's (cuMemAllocFromPoolAsync, cuMemFreeAsync) with full tracking of
// uses across streams. It is the original's AsyncCudaResource and the
// production default. All methods are safe for concurrent use, and work on
// different streams takes no common lock.
type AsyncResource struct{ tracker }

var _ core.Resource = (*AsyncResource)(nil)

// defaultReapInterval is how often queued frees are looked at when nothing
// else does.
const defaultReapInterval = 10 * time.Millisecond

// defaultIsolatedAddresses is the default of [AsyncConfig].
const defaultIsolatedAddresses = 1 << 40

// AsyncConfig configures an [AsyncResource].
type AsyncConfig struct {
	// ReleaseThreshold is how many bytes the pool keeps when the device is
	// idle. Zero, the default, keeps all: giving memory back at every
	// synchronise is the driver's default and costs the most.
	ReleaseThreshold uint64
	// DisableReuse turns off ways in which the pool gives memory that one
	// stream freed to another. Zero, the default, leaves all of them on.
	DisableReuse driver.ReusePolicy
	// ReapInterval is the time between two looks at queued frees; 0 means
	// 10 ms, negative that only calls reap.
	ReapInterval time.Duration
	// IsolatedAddresses is how many bytes of isolated blocks that were freed keep their
	// addresses: beyond it the oldest are given back, and may be handed out anew. Addresses
	// are reserved and given back 1/128 of it at a time, and stay while a block of theirs
	// lives. 0 means 1 TiB.
	IsolatedAddresses uint64
}

// NewAsyncResource returns a backend that allocates from a new pool of drv's,
// on the streams of streams. It must be closed. A device without memory pools
// is refused with an error that matches errors.ErrUnsupported. A stream pool
// serves one resource, for good, because blocks and books are kept by stream.
func NewAsyncResource(drv driver.Driver, streams *StreamPool, cfg AsyncConfig) (*AsyncResource, error) {
	if err := needDevice("NewAsyncResource", drv, streams); err != nil {
		return nil, err
	}
	props, err := drv.Properties()
	if err != nil {
		return nil, err
	}
	if !props.MemoryPools {
		return nil, fmt.Errorf("device %d (%s) has no stream-ordered memory pools: use cuda.DirectResource: %w", drv.Ordinal(), props.Name, errors.ErrUnsupported)
	}
	if cfg.ReleaseThreshold == 0 {
		cfg.ReleaseThreshold = math.MaxUint64
	}
	if err := streams.claimFor("NewAsyncResource"); err != nil {
		return nil, err
	}
	pool, err := newDriverPool(drv, driver.PoolConfig{ReleaseThreshold: cfg.ReleaseThreshold, Disable: cfg.DisableReuse})
	if err != nil {
		streams.hasResource.Store(false)
		return nil, err
	}
	r := &AsyncResource{}
	r.init(r, "async("+deviceName(drv)+")", drv, streams, pool, props, cmp.Or(cfg.IsolatedAddresses, defaultIsolatedAddresses))
	r.startReaper(cfg.ReapInterval)
	return r, nil
}

func deviceName(drv driver.Driver) string {
	kind := "cuda"
	if s, ok := drv.(fmt.Stringer); ok {
		kind = s.String()
	}
	return fmt.Sprintf("%s:%d", kind, drv.Ordinal())
}
