package cuda_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// foreign is what is used of the device and not the resource's.
func (b *bench) foreign(of interface {
	DeviceMemory() (free, total, owned uint64, err error)
}) uint64 {
	b.Helper()
	free, total, owned, err := of.DeviceMemory()
	must(b, err)
	equal(b, "the device's bytes", total, 512<<20)
	return total - free - owned
}

func TestForeignMemoryIsWhatTheResourceDoesNotOwn(t *testing.T) {
	b := newBench(t)
	equal(t, "foreign bytes at the beginning", b.foreign(b.Async), 0)
	x := b.leases(1)[0]
	own, isolated := b.alloc(x, 8<<20), b.isolate(x, 3<<20)
	foreign, err := b.Driver.MemAlloc(16 << 20)
	must(t, err)
	equal(t, "foreign bytes", b.foreign(b.Async), 16<<20)
	if _, _, owned, _ := b.Async.DeviceMemory(); owned < 11<<20 {
		t.Errorf("it owns %d bytes, of which 8 and 3 MiB are allocated", owned)
	}
	must(t, b.Driver.MemFree(foreign))
	b.free(own, isolated)
	b.drain()
	equal(t, "foreign bytes in the end", b.foreign(b.Async), 0)
}

// Memory that moves while it is read is read again.
func TestAReadingIsTakenAgainWhenTheResourceMoves(t *testing.T) {
	b, m := newMeddled(t)
	var blocks []core.Block
	x := b.leases(1)[0]
	meddle := func() {
		if len(blocks) == 0 {
			blocks = append(blocks, b.alloc(x, 64<<20))
		}
	}
	m.asking.Store(&meddle)
	equal(t, "foreign bytes", b.foreign(b.Async), 0)
	m.asking.Store(nil)
	b.free(blocks...)
}

func TestMemoryThatCannotBeReadIsAnError(t *testing.T) {
	b := newBench(t)
	for _, method := range []drivertest.Method{drivertest.MemInfo, drivertest.PoolStats} {
		b.faults.FailEvery(method, driver.InvalidValue)
		if free, total, owned, err := b.Async.DeviceMemory(); !errors.Is(err, core.ErrDriver) || free+total+owned != 0 {
			t.Errorf("%v: %d free, %d in all, %d owned, %v", method, free, total, owned, err)
		}
		b.faults.Clear()
	}
}

// A direct backend has no pool: its blocks are not foreign, and there is no
// drift to tell.
func TestDirectBlocksAreNotForeign(t *testing.T) {
	b := newBench(t)
	direct := cuda.NewDirectResource(b.Driver)
	block, err := direct.Allocate(ctx, core.Request{Bytes: 4 << 20})
	must(t, err)
	equal(t, "foreign bytes", b.foreign(direct), 0)
	_, _, owned, err := direct.DeviceMemory()
	must(t, err)
	equal(t, "owned bytes", owned, 4<<20)
	if drift, err := direct.Drift(); drift.Known || err != nil {
		t.Errorf("there is a drift: %v", err)
	}
	_, err = direct.Deallocate(ctx, block.ID)
	must(t, err)
}
