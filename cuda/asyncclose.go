package cuda

import (
	"cmp"
	"context"
)

// Close stops the reaper, waits for pending frees until ctx ends, gives back the
// addresses that isolated blocks left, and destroys the pool. Live blocks stay
// valid until they are freed, which the device's context does at the latest.
// After a driver's error, and while a capture holds frees back, Close may be
// called again; after it has ended a further one does nothing.
func (r *AsyncResource) Close(ctx context.Context) error {
	r.closing.Lock()
	defer r.closing.Unlock()
	if r.closed {
		return nil
	}
	r.stopReaper()
	<-r.reaperDone
	err := r.Drain(ctx)
	if err != nil && (ctx.Err() == nil || r.held.n.Load() > 0) {
		return err
	}
	if isolatedErr := cmp.Or(r.clearRemains(), r.yield(0, 0)); isolatedErr != nil {
		return cmp.Or(err, isolatedErr)
	}
	if poolErr := r.drv.PoolDestroy(r.pool); poolErr != nil {
		return cmp.Or(err, poolErr)
	}
	r.closed = true
	return err
}
