package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// PoolResource is the stream-ordered backend with a pool of the runtime's own, over memory
// that it maps: the original's PoolResource, the performance tier. It has the contract of
// [AsyncResource] and the same fences; blocks come from the memory of their stream without a
// call of the driver (docs/pool.md). All methods are safe for concurrent use, and work on
// different streams takes no common lock while their own memory lasts.
type PoolResource struct {
	tracker
	arenas *arenas
}

var _ core.Resource = (*PoolResource)(nil)

// addressFactor is how much more address space than memory the device has is reserved:
// memory may be free in pieces at most addresses, and still be mapped in a row.
const addressFactor = 3

// defaultTrimAfter is longer than the pauses of a service that is used: what it gives back
// it takes again at the price of mapping.
const defaultTrimAfter = 30 * time.Second

// PoolConfig configures a [PoolResource].
type PoolConfig struct {
	// Limit is how many bytes of the device the pool holds at most, rounded down to
	// pages; 0 means no limit. Isolated blocks are not the pool's.
	Limit uint64
	// TrimAfter is how long memory must have been free all the time before the pool gives its
	// wholly free pages back to the device, a few each ReapInterval; it takes up to twice as
	// long until they go. 0 means 30 s, negative that only TrimPool gives back. With a negative ReapInterval
	// nothing is given back by itself either.
	TrimAfter time.Duration
	// ReapInterval is the time between two looks at queued frees; 0 means
	// 10 ms, negative that only calls reap.
	ReapInterval time.Duration
	// IsolatedAddresses are those of [AsyncConfig].
	IsolatedAddresses uint64
}

// NewPoolResource returns a backend that maps memory of drv's and shares it out, on
// the streams of streams. It must be closed. A device that maps no memory is refused with an
// error that matches errors.ErrUnsupported. A stream pool serves one resource, for good.
// It reserves addresses, which may block in the driver, and maps memory when there is need
// of it.
func NewPoolResource(drv driver.Driver, streams *StreamPool, cfg PoolConfig) (*PoolResource, error) {
	if err := needDevice("NewPoolResource", drv, streams); err != nil {
		return nil, err
	}
	props, err := drv.Properties()
	if err != nil {
		return nil, err
	}
	page := props.MapGranularity
	if page == 0 {
		return nil, fmt.Errorf("device %d (%s) maps no memory: use cuda.AsyncResource: %w", drv.Ordinal(), props.Name, errors.ErrUnsupported)
	}
	limit := cfg.Limit / page * page
	if cfg.Limit != 0 && limit == 0 {
		return nil, &core.InvalidRequestError{Op: "NewPoolResource", Field: "Limit", Reason: fmt.Sprintf("%d bytes are less than a page: say at least %d, or 0 for no limit", cfg.Limit, page)}
	}
	if err := streams.claimFor("NewPoolResource"); err != nil {
		return nil, err
	}
	l, err := newArenas(drv, page, (props.TotalBytes+page-1)/page*page*addressFactor, limit)
	if err != nil {
		streams.hasResource.Store(false)
		return nil, err
	}
	l.idle.after = cmp.Or(cfg.TrimAfter, defaultTrimAfter)
	r := &PoolResource{arenas: l}
	r.own = l
	r.init(r, "pool("+deviceName(drv)+")", drv, streams, l, props, cmp.Or(cfg.IsolatedAddresses, defaultIsolatedAddresses))
	if cfg.ReapInterval >= 0 {
		l.ahead.start = func(f func() error) { go func() { _ = r.withMemory("NewPoolResource", f) }() }
	}
	r.startReaper(cfg.ReapInterval)
	return r, nil
}

// SetLimit changes [PoolConfig].Limit. What the pool holds beyond it is not taken back: see
// TrimPool. Zero means no limit.
func (r *PoolResource) SetLimit(bytes uint64) { r.arenas.store.SetLimit(bytes) }
