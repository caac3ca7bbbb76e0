package cuda_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
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

// What a launch function allocates after it has synchronised shares no event
// with what the launch writes.
func TestAnAllocationInsideALaunchOfAStreamThatIsGivenUpIsFenced(t *testing.T) {
	b := newBench(t)
	other := b.leases(1)[0]
	l, handle := b.adopt()
	input := b.alloc(l, 256)
	ticket := b.prepare(l, writes(input))
	b.enqueue(l, writes(input))
	b.sync(l)
	output := b.alloc(l, 256)
	release := b.hold(l)
	b.enqueue(l, writes(input))
	must(t, b.Runtime.FinishUse(ctx, ticket))
	b.giveUp(l, handle)
	must(t, b.Runtime.AbortUse(ctx, b.prepare(other, writes(output))))
	release()
	b.free(input, output)
}

// idle waits until all work of l is done, while other streams are held.
func (b *bench) idle(l *cuda.Lease, why string) {
	b.Helper()
	bounded, cancel := within(2000)
	defer cancel()
	if err := b.Streams.Synchronize(bounded, l.ID()); err != nil {
		b.Errorf("%s: %v", why, err)
	}
}

func TestReadinessIsCountedForTheEventThatItIs(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	first := b.alloc(s[0], 256)
	ticket := b.prepare(s[0], writes(first))
	b.enqueue(s[0], writes(first))
	b.launch(s[0])
	second := b.alloc(s[0], 256)
	must(t, b.Runtime.FinishUse(ctx, ticket))
	next := b.prepare(s[0], writes(first))
	release := b.hold(s[0])
	b.enqueue(s[0], writes(first))
	must(t, b.Runtime.FinishUse(ctx, next))
	b.launch(s[1], writes(second))
	b.idle(s[1], "the block waits for a launch that never saw it")
	release()
	b.free(first, second)
}

func TestAnAllocationDuringALaunchDoesNotWaitForIt(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	first := b.alloc(s[0], 256)
	ticket := b.prepare(s[0], writes(first))
	second := b.alloc(s[0], 256)
	release := b.hold(s[0])
	b.enqueue(s[0], writes(first))
	must(t, b.Runtime.FinishUse(ctx, ticket))
	b.launch(s[1], writes(second))
	b.idle(s[1], "the block waits for the launch that was announced when it was allocated")
	release()
	b.free(first, second)
}

func TestReadinessComesBeforeTheWaitsOfALaunchThatWasWithdrawn(t *testing.T) {
	b := newBench(t)
	s := b.leases(3)
	fresh, slow := b.alloc(s[0], 256), b.alloc(s[1], 256)
	release := b.hold(s[1])
	b.launch(s[1], writes(slow))
	must(t, b.Runtime.AbortUse(ctx, b.prepare(s[0], writes(fresh), reads(slow))))
	b.launch(s[2], writes(fresh))
	b.idle(s[2], "the block waits for what another was to be read behind")
	release()
	b.free(fresh, slow)
}
