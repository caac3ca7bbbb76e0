package cuda

import (
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
)

// An operation that meets a stream's lock waits for it, and then is served as any other.
func TestABusyStreamIsWaitedFor(t *testing.T) {
	drv := &drivertest.Null{}
	streams := must.Get(NewStreamPool(drv, StreamPoolConfig{}))(t)
	pool := must.Get(NewPoolResource(drv, streams, PoolConfig{ReapInterval: -1}))(t)
	gate := pathtest.NewGate(pool, 0, 0)
	lease := must.Get(streams.Acquire(t.Context(), "busy"))(t)
	req := core.Request{Bytes: 4096, Stream: lease.ID()}
	kept := must.Get(gate.Allocate(t.Context(), req))(t) // the stream has memory from now on
	b := must.Get(gate.Allocate(t.Context(), req))(t)
	must.Get(gate.Deallocate(t.Context(), b.ID))(t)
	prepared := gate.Prepared.Allocations.Load() + gate.Prepared.Frees.Load()
	for range 10 {
		var b core.Block
		for _, do := range []func() error{
			func() (err error) { b, err = gate.Allocate(t.Context(), req); return err },
			func() (err error) { _, err = gate.Deallocate(t.Context(), b.ID); return err },
		} {
			lease.stream.Lock()
			done := make(chan error, 1)
			go func() { done <- do() }()
			time.Sleep(time.Millisecond) // most often it has met the lock by then
			lease.stream.Unlock()
			must.Do(t, <-done)
		}
	}
	if now := gate.Prepared.Allocations.Load() + gate.Prepared.Frees.Load(); now != prepared {
		t.Errorf("%d of 20 operations were prepared", now-prepared)
	}
	must.Get(gate.Deallocate(t.Context(), kept.ID))(t)
}
