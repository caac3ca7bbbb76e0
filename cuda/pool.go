package cuda

import (
	"context"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// PoolStats reads the driver's pool, in bytes: what it holds of the device
// and what is allocated from it, each with its highest value since the pool
// was made. It makes a driver call; errors are [core.DriverError], and one that
// matches [core.ErrClosed] after Close.
func (r *AsyncResource) PoolStats() (reserved, reservedHigh, used, usedHigh uint64, err error) {
	p, err := r.readPool()
	return p.Reserved, p.ReservedHigh, p.Used, p.UsedHigh, err
}

// TrimPool reaps, and gives memory that nobody has allocated back to the
// device, down to keep bytes that the pool keeps; memory whose free is not
// completed stays. Isolated blocks are none of the pool's and keep nothing but addresses. Allocations that need more take it from the device again, which costs
// far more than the pool does: trim for the sake of a neighbour or after a
// peak, not in a loop. It changes no block and no budget, is safe for
// concurrent use, and may block in the driver. Errors are [core.DriverError], and one that
// matches [core.ErrClosed] after Close, when there is no pool any more.
func (r *AsyncResource) TrimPool(keep uint64) error {
	if err := r.refuseClosed("TrimPool"); err != nil {
		return err
	}
	if err := r.ReapPending(context.Background()); err != nil {
		return err
	}
	return r.withPool("TrimPool", func(p driver.Pool) error { return r.drv.PoolTrim(p, keep) })
}
