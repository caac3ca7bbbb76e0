package cuda_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// eachBackend runs a test over the driver's pool and over the runtime's own.
func eachBackend(t *testing.T, pages uint64, test func(t *testing.T, b *bench)) {
	for name, options := range map[string][]func(*teststack.Config){"async": nil, "pool": {pooled(pages)}} {
		t.Run(name, func(t *testing.T) { test(t, newBench(t, options...)) })
	}
}

// heldElsewhere frees a block of s[0] that work on s[1] reads and does not come to an end until release
// is called.
func (b *bench) heldElsewhere(s []*cuda.Lease, block core.Block) (release func()) {
	b.Helper()
	b.launch(s[0], writes(block))
	b.sync(s[0])
	release = b.hold(s[1])
	b.launch(s[1], reads(block))
	waits := b.faults.Calls(drivertest.StreamWait)
	b.free(block)
	equal(b, "waits of the free", b.faults.Calls(drivertest.StreamWait)-waits, 0)
	return release
}

// What is enqueued on a block's stream after its free goes on while another stream still uses the block, and
// the block is released when that use is seen completed, not before.
func TestAFreeDoesNotHoldItsStreamUp(t *testing.T) {
	eachBackend(t, 8, func(t *testing.T, b *bench) {
		s := b.leases(2)
		other, block := b.alloc(s[0], 4096), b.alloc(s[0], 4096)
		released := 0
		release := b.heldElsewhere(s, block)
		b.Backend.Subscribe(listener(func(gone core.Block) {
			if gone.ID == block.ID {
				released++
			}
		}))
		b.launch(s[0], readWrites(other))
		b.sync(s[0]) // it would not return if the stream waited for the use
		must(t, b.Runtime.ReapPending(ctx))
		st := b.Runtime.Stats()
		equal(t, "pending", st.Pending.Blocks, 1)
		equal(t, "released", released, 0)
		equal(t, "state", b.Runtime.State(block.ID), core.Retired)
		release()
		b.drain()
		equal(t, "released after the use", released, 1)
		equal(t, "pending after the use", b.Runtime.Stats().Pending.Blocks, 0)
		freed := b.Backend.FreedOn(s[0].ID())
		equal(t, "freed on the stream", freed, core.FreeCounters{Queued: 4096, Completed: 4096})
		b.free(other)
	})
}

// The memory of a block that another stream uses is the last that the pool gives to anybody: and then
// who takes it waits, whichever stream that is, and its own stream does not.
func TestOnlyTheReuseOfMemoryThatIsUsedElsewhereWaits(t *testing.T) {
	for name, taker := range map[string]int{"its own stream": 0, "the stream that uses it": 1, "a third stream": 2} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pooled(4))
			s := b.leases(3)
			other, used, spare := b.alloc(s[0], poolPage), b.alloc(s[0], 2*poolPage), b.alloc(s[0], poolPage)
			b.free(spare)
			release := b.heldElsewhere(s, used)
			waits := b.faults.Calls(drivertest.StreamWait)
			spare = b.alloc(s[taker], poolPage)
			equal(t, "waits while there is other memory", b.faults.Calls(drivertest.StreamWait)-waits, 0)
			taken := b.alloc(s[taker], 2*poolPage)
			equal(t, "the address", taken.ID.Ptr, used.ID.Ptr)
			if taker != 1 {
				b.launch(s[taker], writes(taken))
			}
			if taker != 0 {
				b.launch(s[0], readWrites(other))
				b.sync(s[0])
			}
			if got := b.faults.Calls(drivertest.StreamWait) - waits; got == 0 && taker != 1 {
				t.Error("nothing waits for the use")
			}
			equal(t, "state of the block that is used", b.Runtime.State(used.ID), core.Retired)
			release()
			b.launch(s[taker], readWrites(taken))
			b.free(other, spare, taken)
			b.drain()
		})
	}
}

// A drain ends when those who are told of a block that was used elsewhere have heard of it, whoever tells them.
func TestADrainWaitsForWhatAnotherReapReleases(t *testing.T) {
	eachBackend(t, 8, func(t *testing.T, b *bench) {
		s := b.leases(2)
		block := b.alloc(s[0], 4096)
		release := b.heldElsewhere(s, block)
		told, heard := make(chan struct{}), make(chan struct{})
		b.Backend.Subscribe(listener(func(core.Block) { close(told); <-heard }))
		release()
		b.sync(s...)
		reaped := make(chan error, 1)
		go func() {
			for b.Runtime.State(block.ID) != core.Freed {
				must(t, b.Backend.ReapPending(ctx))
			}
			reaped <- nil
		}()
		<-told
		short, cancel := within(20)
		defer cancel()
		if err := b.Backend.Drain(short); err == nil {
			t.Error("it ends before")
		}
		close(heard)
		must(t, <-reaped)
		b.drain()
	})
}
