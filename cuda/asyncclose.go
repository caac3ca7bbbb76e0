package cuda

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
)

// driverMoment is what calls of the driver that take no time are given when ctx
// has ended already: plenty, unless the driver does not answer.
const driverMoment = time.Second

// Close stops the reaper, waits for pending frees until ctx ends, gives back the
// addresses that isolated blocks left, and destroys the pool; with a context that
// has ended it does the same without waiting. Live blocks stay
// valid until they are freed, which the device's context does at the latest.
// After a driver's error, while frees wait for the end of a capture, and where a call of
// the driver does not return until ctx ends, Close may be called again; after it
// has ended a further one does nothing, and allocating and trimming are refused
// with [core.ErrClosed].
func (r *AsyncResource) Close(ctx context.Context) error {
	r.stopReaper() // whoever else closes, and however little time there is
	if !r.claimClose(ctx) {
		return fmt.Errorf("closing the pool: another call has not ended it: %w", ctx.Err())
	}
	defer func() { <-r.closing }()
	if r.naming.Load() == poolGone {
		return nil
	}
	if err := r.endReaper(ctx); err != nil {
		return err
	}
	err := r.Drain(ctx)
	if err != nil && (ctx.Err() == nil || r.waitingForCaptures() > 0) {
		return err
	}
	if isolatedErr := cmp.Or(r.clearRemains(), r.yield(0, 0)); isolatedErr != nil {
		return cmp.Or(err, isolatedErr)
	}
	return cmp.Or(err, r.destroyPool(ctx))
}

// claimClose takes the right to close, or answers false if another call has it
// until ctx ends. A right that nobody has is taken whether ctx has ended or not.
func (r *AsyncResource) claimClose(ctx context.Context) bool {
	select {
	case r.closing <- struct{}{}:
		return true
	default:
	}
	select {
	case r.closing <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// endReaper waits for the reaper, which was stopped. It may be in a call of the
// driver.
func (r *AsyncResource) endReaper(ctx context.Context) error {
	select {
	case <-r.reaperDone:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-r.reaperDone:
		return nil
	case <-time.After(driverMoment):
		return fmt.Errorf("closing the pool: the driver does not answer the reaper: %w", ctx.Err())
	}
}

// poolGone is in place of the number of those who name the pool, once it is
// destroyed or about to be.
const poolGone = -1

// destroyPool waits for those who name the pool.
func (r *AsyncResource) destroyPool(ctx context.Context) error {
	if err := deadline.Poll(ctx, func() (bool, error) { return r.naming.CompareAndSwap(0, poolGone), nil }); err != nil {
		return fmt.Errorf("closing the pool: it is being trimmed or asked: %w", err)
	}
	err := r.drv.PoolDestroy(r.pool)
	if err != nil {
		r.naming.Store(0)
	}
	return err
}

// withPool calls f with the pool, which is not destroyed meanwhile. Allocations
// do without: who closes has ended them.
func (r *AsyncResource) withPool(op string, f func(driver.Pool) error) error {
	for {
		n := r.naming.Load()
		if n == poolGone {
			return errPoolGone(op)
		}
		if r.naming.CompareAndSwap(n, n+1) {
			break
		}
	}
	defer r.naming.Add(-1)
	return f(r.pool)
}

// refuseClosed is the error of what needs the pool when that is gone.
func (r *AsyncResource) refuseClosed(op string) error {
	if r.naming.Load() == poolGone {
		return errPoolGone(op)
	}
	return nil
}

func errPoolGone(op string) error {
	return fmt.Errorf("%s refused: the resource is %w", op, core.ErrClosed)
}
