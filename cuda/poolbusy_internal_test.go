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

// A guard may withhold a block, and its owner frees it. The next block of that size counts as any other.
func TestABlockThatIsKeptForgetsThatItWasWithheld(t *testing.T) {
	drv := &drivertest.Null{}
	streams := must.Get(NewStreamPool(drv, StreamPoolConfig{}))(t)
	pool := must.Get(NewPoolResource(drv, streams, PoolConfig{ReapInterval: -1}))(t)
	gate := pathtest.NewGate(pool, 0, 0)
	req := core.Request{Bytes: 4096, Stream: must.Get(streams.Acquire(t.Context(), "withholds"))(t).ID()}
	for range 10 {
		b := must.Get(gate.Allocate(t.Context(), req))(t)
		pool.Withhold(b.ID, core.Quarantined)
		must.Get(gate.Deallocate(t.Context(), b.ID))(t)
	}
	blocks := [2]core.Block{must.Get(gate.Allocate(t.Context(), req))(t), must.Get(gate.Allocate(t.Context(), req))(t)}
	if peak := pool.Stats().PeakBytes; peak != 2*req.Bytes || gate.Ordinary.Allocations.Load() == 0 {
		t.Errorf("the peak is %d, want %d; %d allocations were ordinary", peak, 2*req.Bytes,
			gate.Ordinary.Allocations.Load())
	}
	for _, b := range blocks {
		must.Get(gate.Deallocate(t.Context(), b.ID))(t)
	}
}

// A layer hears of no operation that does not come through it.
func TestOfTwoStacksOverAPoolEachHearsOfItsOwnOperations(t *testing.T) {
	drv := &drivertest.Null{}
	streams := must.Get(NewStreamPool(drv, StreamPoolConfig{}))(t)
	pool := must.Get(NewPoolResource(drv, streams, PoolConfig{ReapInterval: -1}))(t)
	gates := [2]*pathtest.Gate{pathtest.NewGate(pool, 0, 0), pathtest.NewGate(pool, 0, 0)}
	req := core.Request{Bytes: 4096, Stream: must.Get(streams.Acquire(t.Context(), "forked"))(t).ID()}
	for _, gate := range gates {
		for range 100 {
			must.Get(gate.Deallocate(t.Context(), must.Get(gate.Allocate(t.Context(), req))(t).ID))(t)
		}
	}
	for i, gate := range gates {
		if n := gate.AtOnce.Frees.Load() + gate.Prepared.Frees.Load(); n != 100 {
			t.Errorf("layer %d heard of %d frees of its 100", i, n)
		}
	}
}
