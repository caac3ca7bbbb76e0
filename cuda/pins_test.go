package cuda_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// busy is a device that keeps no reference to anything and is never done
// before it is told to be.
type busy struct {
	drivertest.Null
	done atomic.Bool
}

func (d *busy) EventQuery(driver.Event) (bool, error)   { return d.done.Load(), nil }
func (d *busy) StreamQuery(driver.Stream) (bool, error) { return d.done.Load(), nil }

// busyCopy copies from host memory that nobody else keeps.
func busyCopy(t *testing.T, d driver.Driver) (*cuda.StreamPool, *cuda.Slice[uint64], weak.Pointer[uint64]) {
	t.Helper()
	p, err := cuda.NewStreamPool(d, cuda.StreamPoolConfig{})
	must(t, err)
	slice, err := cuda.Alloc[uint64](ctx, cuda.NewUntrackedManager(d, p, 0), 1000, cuda.AllocOptions{})
	must(t, err)
	host := make([]uint64, 1000)
	must(t, cuda.CopyToDevice(ctx, slice, 0, host))
	return p, slice, weak.Make(&host[0])
}

func collect() {
	for range 3 {
		runtime.GC()
	}
}

// collected waits until the collector has taken what only a weak pointer has.
func collected[T any](what weak.Pointer[T]) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if collect(); what.Value() == nil {
			return true
		}
	}
	return false
}

func TestHostBufferIsKeptUntilItsCopyHasPassed(t *testing.T) {
	d := new(busy)
	p, slice, host := busyCopy(t, d)
	collect()
	if host.Value() == nil {
		t.Fatal("the buffer of a copy under way was collected")
	}
	bounded, cancel := within(2)
	defer cancel()
	if err := p.Synchronize(bounded, 0); err == nil {
		t.Fatal("a busy stream was synchronised")
	}
	d.done.Store(true)
	must(t, p.Synchronize(ctx, 0))
	if !collected(host) {
		t.Error("the buffer is kept although its copy has passed")
	}
	must(t, slice.Free(ctx))
	must(t, p.Close(ctx))
}

func TestTheReaperLetsGoOfHostBuffers(t *testing.T) {
	b := newBench(t, ticking)
	l := b.leases(1)[0]
	slice := b.owned(l)
	host := make([]uint32, 64)
	kept := weak.Make(&host[0])
	must(t, cuda.CopyToDevice(ctx, slice, l.ID(), host))
	if !collected(kept) {
		t.Error("a buffer whose copy has passed is kept although the reaper ticks")
	}
}

// TestADroppedPoolDoesNotEndTheProgram: Go ends the program when it collects
// a pinner that still pins.
func TestADroppedPoolDoesNotEndTheProgram(t *testing.T) {
	_, _, _ = busyCopy(t, new(busy))
	collect()
}

func TestACopyWhoseEventFailsIsWaitedFor(t *testing.T) {
	faults := drivertest.NewFaults(new(busy))
	p, err := cuda.NewStreamPool(faults, cuda.StreamPoolConfig{})
	must(t, err)
	slice, err := cuda.Alloc[uint64](ctx, cuda.NewUntrackedManager(faults, p, 0), 8, cuda.AllocOptions{})
	must(t, err)
	faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	must(t, cuda.CopyToDevice(ctx, slice, 0, make([]uint64, 8)))
	equal(t, "synchronisations", faults.Calls(drivertest.StreamSynchronize), 1)

	faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	faults.FailMethod(drivertest.StreamSynchronize, 1, driver.InvalidHandle)
	host := make([]uint64, 8)
	kept := weak.Make(&host[0])
	if err := cuda.CopyToDevice(ctx, slice, 0, host); err == nil {
		t.Error("the failure was swallowed")
	}
	collect()
	if kept.Value() == nil {
		t.Error("a buffer that the device may still read was let go")
	}
	must(t, slice.Free(ctx))
	must(t, p.Close(ctx))
}
