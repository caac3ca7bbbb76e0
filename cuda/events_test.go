package cuda_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

func TestEventsOfStreamsThatAreGoneAreCounted(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	b.launch(l, writes(block))
	b.sync(l)
	b.giveUp(l, handle)
	must(t, b.Runtime.ReapPending(ctx))
	there := b.faults.Calls(drivertest.EventCreate) - b.faults.Calls(drivertest.EventDestroy)
	equal(t, "events that a block holds", there > 0, true)
	equal(t, "events in the resource's statistics", b.Runtime.Stats().Events, there)
	equal(t, "events in the pool's statistics", uint64(b.Streams.Stats().Events), there)
	b.free(block)
}
