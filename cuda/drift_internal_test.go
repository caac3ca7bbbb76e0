package cuda

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// An isolated block that is half in the books and a block of the pool that is not
// yet in them must not cancel out: that moment is not quiet.
func TestTwoAllocationsOnTheirWayIntoTheBooksAreNoDrift(t *testing.T) {
	drv, err := sim.Open(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := NewStreamPool(drv, StreamPoolConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewAsyncResource(drv, streams, AsyncConfig{ReapInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	s := streams.table.streams()[0]

	release := r.streams.table.group.HoldRecalls() // an allocation that makes a new peak comes as far as here, in the books already
	var group sync.WaitGroup
	var isolated core.Block
	group.Go(func() {
		var err error
		if isolated, err = r.Allocate(t.Context(), core.Request{Bytes: 1 << 20, Isolated: true}); err != nil {
			t.Error(err)
		}
	})
	for r.Stats().Allocations == 0 {
		time.Sleep(time.Millisecond)
	}
	ptr, ready, _, err := r.allocateOn(s, &core.Request{Bytes: 4096}) // the pool's half of an allocation
	if err != nil {
		t.Fatal(err)
	}
	if drift, err := r.Drift(); drift.Known || err != nil {
		t.Errorf("drift %d (%v, %v) while two allocations are under way", drift.Bytes, drift.Known, err)
	}
	release()
	group.Wait()
	if drift, err := r.Drift(); drift.Known || err != nil {
		t.Errorf("drift %d (%v, %v) while one is under way", drift.Bytes, drift.Known, err)
	}
	ready.Release()
	expect.Success(t, drv.MemFreeAsync(ptr, 0))
	if _, err := r.Deallocate(t.Context(), isolated.ID); err != nil {
		t.Error(err)
	}
	expect.Success(t, errors.Join(r.Close(t.Context()), streams.Close(t.Context()), drv.Close()))
}
