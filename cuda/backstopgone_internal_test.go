package cuda

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// Close destroys the backstop while a free waits for its lock: the free names it no more.
func TestNothingIsQueuedOnABackstopThatIsGone(t *testing.T) {
	device := must.Get(sim.Open(sim.Config{}))(t)
	drv := drivertest.NewFaults(device)
	streams := must.Get(NewStreamPool(drv, StreamPoolConfig{}))(t)
	r := must.Get(NewAsyncResource(drv, streams, AsyncConfig{ReapInterval: -1}))(t)
	handle := must.Get(drv.StreamCreate())(t)
	lease := must.Get(streams.Adopt(handle, "adopted"))(t)
	block := must.Get(r.Allocate(t.Context(), core.Request{Bytes: 256, Stream: lease.ID()}))(t)
	must.Do(t, lease.Release())
	b := streams.table.lookup(block.ID)
	backstop, final, err := streams.forFrees(b.stream)
	must.Do(t, err)
	must.Do(t, streams.Close(t.Context()))

	if waits, _, err := r.queueFreeBehind(backstop, b, final, true); waits != waitsForRetry || !errors.Is(err, errGivenUp) {
		t.Errorf("the free: %d, %v", waits, err)
	}
	if n := drv.Calls(drivertest.StreamWait) + drv.Calls(drivertest.MemFreeAsync); n != 0 {
		t.Errorf("%d calls of the driver name a stream that is gone", n)
	}
	if _, err := r.Deallocate(t.Context(), block.ID); !errors.Is(err, core.ErrClosed) {
		t.Errorf("the free, begun again: %v", err)
	}
	must.Do(t, device.Close())
}
