package cuda_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

func TestDirectFreesByGenerationAndNotByPointer(t *testing.T) {
	b := newBench(t)
	direct := cuda.NewDirectResource(b.Driver)
	first, err := direct.Allocate(ctx, core.Request{Bytes: 64})
	must(t, err)
	_, err = direct.Deallocate(ctx, first.ID)
	must(t, err)
	second, err := direct.Allocate(ctx, core.Request{Bytes: 64})
	must(t, err)
	stale := first.ID
	stale.Ptr = second.ID.Ptr // whatever the driver reuses
	expect.ErrorOf(direct.Deallocate(ctx, stale))(t, core.ErrUseAfterFree, "a stale handle at a live address")
	equal(t, "state", direct.State(second.ID), core.Live)
	_, err = direct.Deallocate(ctx, second.ID)
	must(t, err)
}

func TestDirectRefusesWhatItCannotDo(t *testing.T) {
	direct := cuda.NewDirectResource(&drivertest.Null{})
	_, prepared := direct.PrepareUse(ctx, core.UseRequest{})
	_, reserved := direct.Reserve(ctx, 1, "test")
	for name, err := range map[string]error{
		"PrepareUse": prepared, "Reserve": reserved,
		"FinishUse": direct.FinishUse(ctx, core.Ticket{}), "AbortUse": direct.AbortUse(ctx, core.Ticket{}),
		"RecordUse": direct.RecordUse(ctx, core.BlockID{}, 0), "ReleaseClaim": direct.ReleaseClaim(ctx, 1),
	} {
		if !errors.Is(err, core.ErrStreamMisuse) || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOfTwoConcurrentDirectFreesOneReachesTheDriver(t *testing.T) {
	faults := drivertest.NewFaults(&drivertest.Null{})
	direct := cuda.NewDirectResource(faults)
	for range 100 {
		block, err := direct.Allocate(ctx, core.Request{Bytes: 64})
		must(t, err)
		var freed atomic.Int32
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if _, err := direct.Deallocate(ctx, block.ID); err == nil {
					freed.Add(1)
				}
			})
		}
		group.Wait()
		equal(t, "frees that succeeded", freed.Load(), 1)
	}
	equal(t, "driver frees", faults.Calls(drivertest.MemFree), 100)
}

func TestAFailedDirectFreeLeavesTheBlockLive(t *testing.T) {
	faults := drivertest.NewFaults(&drivertest.Null{})
	direct := cuda.NewDirectResource(faults)
	block, err := direct.Allocate(ctx, core.Request{Bytes: 64})
	must(t, err)
	faults.FailMethod(drivertest.MemFree, 1, driver.InvalidValue)
	if _, err := direct.Deallocate(ctx, block.ID); !errors.Is(err, core.ErrDriver) {
		t.Fatalf("got %v", err)
	}
	st := direct.Stats()
	if direct.State(block.ID) != core.Live || st.Live.Blocks != 1 || st.Failures != 1 || st.Deallocations != 0 {
		t.Errorf("state %v, books %+v", direct.State(block.ID), st)
	}
	_, err = direct.Deallocate(ctx, block.ID)
	must(t, err)
}
