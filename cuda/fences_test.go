package cuda_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// The tests of this file count the waits and records that the driver saw. No
// reaper ticks in them: what it has seen complete needs no wait.

func TestReadWaitsForAWriteOfAnotherStreamOnly(t *testing.T) {
	b := newBench(t)
	s := b.leases(3)
	block := b.alloc(s[0], 256)
	equal(t, "a write on the home stream", b.launch(s[0], writes(block)), fenced{0, 0, 1})
	equal(t, "a read on the home stream", b.launch(s[0], reads(block)), fenced{0, 0, 1})
	equal(t, "a read on another stream", b.launch(s[1], reads(block)), fenced{1, 0, 1})
	equal(t, "a read on a third stream waits for the write alone", b.launch(s[2], reads(block)), fenced{1, 0, 1})
	b.free(block)
}

func TestWriteWaitsForTheWriteAndAllReadsOfOtherStreams(t *testing.T) {
	b := newBench(t)
	s := b.leases(4)
	block := b.alloc(s[0], 256)
	b.launch(s[0], writes(block))
	for _, reader := range s[:3] {
		b.launch(reader, reads(block))
	}
	// the write and the read of s[0] are one stream's: its newest event, or
	// that of a reader which waited for the write, covers the older
	got := b.launch(s[3], writes(block))
	equal(t, "waits of the write", got.waits, 3)
	equal(t, "waits and elisions of the write", got.waits+got.elided, 4)
	b.free(block)
}

func TestReadWriteWaitsForBoth(t *testing.T) {
	b := newBench(t)
	s := b.leases(3)
	block := b.alloc(s[0], 256)
	b.launch(s[0], writes(block))
	b.launch(s[1], reads(block))
	got := b.launch(s[2], readWrites(block))
	// the reader waited for the writer, so that its event orders both
	equal(t, "read-write after a write and a dominating read", got, fenced{1, 1, 1})
	b.free(block)
}

func TestManyBlocksOfOneStreamNeedOneWaitAndOneRecord(t *testing.T) {
	for _, n := range []int{1, 8, 256} {
		b := newBench(t)
		s := b.leases(2)
		blocks := b.allocs(s[0], n, 256)
		for _, block := range blocks {
			b.launch(s[0], writes(block))
		}
		equal(t, "fences of a launch over many blocks", b.launch(s[1], reads(blocks...)), fenced{1, n - 1, 1})
		b.free(blocks...)
	}
}

func TestOrderIsTransitive(t *testing.T) {
	b := newBench(t)
	s := b.leases(3)
	x, y := b.alloc(s[0], 256), b.alloc(s[1], 256)
	b.launch(s[0], writes(x))
	equal(t, "Y after X", b.launch(s[1], reads(x), writes(y)).waits, 1)
	equal(t, "Z after Y, which is after X", b.launch(s[2], reads(x), reads(y)), fenced{1, 1, 1})
	equal(t, "Z again", b.launch(s[2], reads(x), reads(y)), fenced{0, 2, 1})
	b.free(x, y)
}

func TestAWaitCoversOlderWorkOfItsStream(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	older, newer := b.alloc(s[0], 256), b.alloc(s[0], 256)
	b.launch(s[0], writes(older))
	b.launch(s[0], writes(newer))
	equal(t, "the newer", b.launch(s[1], reads(newer)), fenced{1, 0, 1})
	equal(t, "the older, afterwards", b.launch(s[1], reads(older)), fenced{0, 1, 1})
	b.free(older, newer)
}

func TestSynchronizedStreamsNeedNoWait(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.launch(s[0], writes(block))
	b.sync(s[0])
	equal(t, "a read of what the host has seen done", b.launch(s[1], reads(block)), fenced{0, 1, 1})
	b.free(block)
}

func TestUseOnAnotherStreamWaitsForTheAllocation(t *testing.T) {
	for _, access := range []func(...core.Block) []use{writes, readWrites, reads} {
		b := newBench(t)
		s := b.leases(2)
		block := b.alloc(s[0], 256)
		equal(t, "first use on another stream", b.launch(s[1], access(block)), fenced{1, 0, 1})
		b.free(block)
	}
}

func TestFirstUseHelpersWaitForTheAllocation(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	slice, err := cuda.Alloc[uint64](ctx, b.Memory, 32, cuda.AllocOptions{Stream: s[0].ID()})
	must(t, err)
	ticket, err := b.Runtime.PrepareFirstUse(ctx, slice, s[1].ID(), core.Write)
	must(t, err)
	equal(t, "waits", ticket.Waits(), 1)
	must(t, b.Driver.MemsetAsync(slice.Ptr(), 1, slice.Bytes(), s[1].Handle()))
	must(t, b.Runtime.FinishFirstUse(ctx, ticket))
	must(t, slice.Free(ctx))
}

func TestFreeWaitsForExactlyWhatIsOutstanding(t *testing.T) {
	b := newBench(t, deviceOrdered)
	s := b.leases(4)
	home, written, read := b.alloc(s[0], 256), b.alloc(s[0], 256), b.alloc(s[0], 256)
	b.launch(s[0], writes(home, read))
	b.launch(s[1], writes(written))
	b.launch(s[2], reads(read))
	b.launch(s[3], reads(read))
	equal(t, "waits of the free of a block used at home", b.freeWaits(home), 0)
	equal(t, "waits of the free of a block written elsewhere", b.freeWaits(written), 1)
	equal(t, "waits of the free of a block read on two streams", b.freeWaits(read), 2)
}

func TestWaitsAreCounted(t *testing.T) {
	b := newBench(t)
	s := b.leases(3)
	blocks := b.allocs(s[0], 3, 256)
	b.launch(s[0], writes(blocks...))
	b.launch(s[1], reads(blocks...))
	b.launch(s[2], writes(blocks[0]))
	b.free(blocks...)
	st := b.Runtime.Stats()
	equal(t, "waits in the books and at the driver", st.WaitsQueued, b.faults.Calls(drivertest.StreamWait))
	equal(t, "elided", st.WaitsElided, 2+1)
	equal(t, "launches", st.Launches, 3)
	equal(t, "launches across streams", st.CrossStream, 2)
}

func TestHotReadOnlyBlockStaysSmall(t *testing.T) {
	b := newBench(t, deviceOrdered)
	s := b.leases(17)
	table := b.alloc(s[0], 256)
	b.launch(s[0], writes(table))
	round := func(n int) {
		for i := range n {
			on := s[1+i%16].ID()
			ticket, err := b.Runtime.PrepareUse(ctx, core.UseRequest{Stream: on, Uses: declared(reads(table))})
			must(t, err)
			must(t, b.Runtime.FinishUse(ctx, ticket))
		}
	}
	launches := 100_000
	if testing.Short() {
		launches = 10_000
	}
	round(1000)
	events, waits := b.Runtime.Stats().Events, b.faults.Calls(drivertest.StreamWait)
	round(launches - 1000)
	equal(t, "events after all launches", b.Runtime.Stats().Events, events)
	equal(t, "waits after all launches", b.faults.Calls(drivertest.StreamWait), waits)
	equal(t, "waits of the free", b.freeWaits(table), 16)
}

func TestRecordedUseIsAddedAndRemovesNothing(t *testing.T) {
	b := newBench(t)
	s := b.leases(4)
	block := b.alloc(s[0], 256)
	b.launch(s[0], writes(block))
	b.launch(s[1], reads(block))
	b.sync(s[0], s[1]) // the unprepared use below must not race
	release := b.hold(s[2])
	b.enqueue(s[2], reads(block))
	must(t, b.Runtime.RecordBlockUse(ctx, block.ID, s[2].ID()))
	got := b.launch(s[3], reads(block))
	equal(t, "a read waits for the recorded use, which counts as a write", got.waits, 1)
	equal(t, "waits of the free", b.freeWaits(block), 0)
	must(t, b.Runtime.ReapPending(ctx))
	equal(t, "frees that wait for the recorded use and the read", b.Async.WaitsFor(block.ID), "uses")
	release()
}

func TestRecordedUsesOfOneStreamAreKeptOnce(t *testing.T) {
	b := newBench(t, deviceOrdered)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.launch(s[1], reads(block))
	for range 100 {
		must(t, b.Runtime.RecordBlockUse(ctx, block.ID, s[1].ID()))
	}
	if events := b.Runtime.Stats().Events; events > 8 {
		t.Errorf("%d events after 100 recorded uses of one stream", events)
	}
	equal(t, "waits of the free", b.freeWaits(block), 1)
}
