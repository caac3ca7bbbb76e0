package cuda_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// recordsOf counts the events that the driver records during f.
func (b *bench) recordsOf(f func()) uint64 {
	before := b.faults.Calls(drivertest.EventRecord)
	f()
	return b.faults.Calls(drivertest.EventRecord) - before
}

func TestBlocksOfOneStreamCostNoEventForTheirReadiness(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	equal(t, "records", b.recordsOf(func() {
		for range 10 {
			b.free(b.alloc(l, 256))
		}
	}), 0)
	blocks := b.allocs(l, 4, 256)
	equal(t, "records of a launch that writes them all", b.recordsOf(func() { b.launch(l, writes(blocks...)) }), 1)
	b.free(blocks...)
}

func TestAllocationsShareTheEventThatMakesThemReady(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	blocks := b.allocs(s[0], 3, 256)
	equal(t, "records", b.recordsOf(func() {
		for i, block := range blocks {
			waits := b.launch(s[1], writes(block)).waits
			equal(t, "waits", waits, map[bool]int{true: 1, false: 0}[i == 0])
		}
	}), 4) // one for the three allocations, one a launch
	b.free(blocks...)
}

// A launch on the allocation stream must not come before the event behind the
// allocations: another stream would wait for it, and nothing demands that.
func TestReadinessOrdersNoMoreThanTheAllocation(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block, busy := b.alloc(s[0], 256), b.alloc(s[0], 256)
	ticket := b.prepare(s[0], writes(busy))
	release := b.hold(s[0])
	b.enqueue(s[0], writes(busy))
	must(t, b.Runtime.FinishUse(ctx, ticket))
	b.launch(s[1], writes(block))
	b.sync(s[1]) // while the other launch is held
	release()
	b.free(block, busy)
}

func TestReadinessOfALaunchThatWasWithdrawnIsRecordedLater(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	must(t, b.Runtime.AbortUse(ctx, b.prepare(s[0], writes(block))))
	equal(t, "waits", b.launch(s[1], writes(block)).waits, 1)
	b.free(block)
}

func TestReadinessThatCannotBeRecordedRefusesTheLaunch(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block, other := b.alloc(s[0], 256), b.alloc(s[0], 256)
	for _, on := range s { // by who needs it, and by the next launch on its stream
		b.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
		if _, err := b.Runtime.PrepareBlockUse(ctx, block.ID, on.ID(), core.Write); !errors.Is(err, core.ErrDriver) {
			t.Fatalf("got %v", err)
		}
		b.faults.Clear()
	}
	equal(t, "open intents", b.Runtime.Stats().OpenIntents, 0)
	equal(t, "waits", b.launch(s[1], writes(block)).waits, 1)
	b.free(block, other)
}

// What the host has synchronised with says nothing of an allocation that came
// later.
func TestAnAllocationAfterASynchronizeIsWaitedFor(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	first := b.alloc(s[0], 256)
	b.sync(s[0])
	second := b.alloc(s[0], 256)
	equal(t, "waits for the first", b.launch(s[1], writes(first)).waits, 0)
	equal(t, "waits for the second", b.launch(s[1], writes(second)).waits, 1)
	b.free(first, second)
}
