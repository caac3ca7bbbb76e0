package cuda_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// An allocation has seen that the resource is open and is about to take memory: Close waits for it.
func TestCloseWaitsForAnAllocationThatIsTaking(t *testing.T) {
	b, slow := newSlowBench(t)
	s := b.leases(1)[0]
	arrived, release := slow.stall(t, drivertest.MemAllocAsync, false)
	allocated, ended := make(chan error), make(chan error, 1)
	var block core.Block
	go func() {
		var err error
		block, err = b.Async.Allocate(ctx, core.Request{Bytes: 256, Stream: s.ID()})
		allocated <- err
	}()
	<-arrived
	go func() { ended <- b.Async.Close(ctx) }()
	select {
	case err := <-ended:
		t.Errorf("closed under the allocation: %v", err)
		ended <- nil
	case <-time.After(50 * time.Millisecond): // nothing depends on how long
	}
	release()
	must(t, errors.Join(<-allocated, <-ended))
	b.free(block)
}

// growing is a driver whose first MemCreate lasts.
type growing struct {
	driver.Driver
	once             sync.Once
	arrived, release chan struct{}
}

func (c *growing) Unwrap() driver.Driver { return c.Driver }

func (c *growing) MemCreate(bytes uint64) (driver.MemHandle, error) {
	c.once.Do(func() {
		close(c.arrived)
		<-c.release
	})
	return c.Driver.MemCreate(bytes)
}

// Close of a pool that is being made room in does not wait for longer than it may.
func TestCloseWaitsForRoomNoLongerThanItMay(t *testing.T) {
	device, err := sim.Open(sim.Config{})
	must(t, err)
	drv := &growing{Driver: device, arrived: make(chan struct{}), release: make(chan struct{})}
	streams, err := cuda.NewStreamPool(drv, cuda.StreamPoolConfig{})
	must(t, err)
	r, err := cuda.NewPoolResource(drv, streams, cuda.PoolConfig{ReapInterval: -1})
	must(t, err)
	s, err := streams.Acquire(ctx, "test")
	must(t, err)
	allocated, ended := make(chan error), make(chan error)
	go func() {
		b, err := r.Allocate(ctx, core.Request{Bytes: 256, Stream: s.ID()})
		if err == nil {
			_, err = r.Deallocate(ctx, b.ID)
		}
		allocated <- err
	}()
	<-drv.arrived
	short, cancel := within(20)
	defer cancel()
	go func() { ended <- r.Close(short) }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		close(drv.release)
	case <-time.After(patience):
		t.Error("Close waits for the driver")
		close(drv.release)
		t.Logf("Close, released: %v", <-ended)
	}
	must(t, errors.Join(<-allocated, r.Close(ctx), s.Release(), streams.Close(ctx), device.Close()))
}
