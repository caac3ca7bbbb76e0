package cuda_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// adopt makes a stream outside the pool and adopts it.
func (b *bench) adopt() (*cuda.Lease, driver.Stream) {
	b.Helper()
	handle, err := b.Sim.StreamCreate()
	must(b, err)
	l, err := b.Streams.Adopt(handle, "adopted")
	must(b, err)
	return l, handle
}

// giveUp releases an adopted stream and destroys it at once: the runtime must
// not name it any more.
func (b *bench) giveUp(l *cuda.Lease, handle driver.Stream) {
	b.Helper()
	must(b, l.Release())
	must(b, b.Sim.StreamDestroy(handle))
}

func TestDefaultStreamsAreNotAdopted(t *testing.T) {
	b := newBench(t)
	for handle, want := range map[driver.Stream]string{0: "core.DefaultStream", 1: "core.DefaultStream", 2: "per-thread"} {
		_, err := b.Streams.Adopt(handle, "test")
		misuse(t, "adopting a default stream", err)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("handle %d: %v", handle, err)
		}
	}
}

func TestAStreamIsAdoptedOnceAtATime(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	_, err := b.Streams.Adopt(handle, "again")
	misuse(t, "second adoption", err)
	equal(t, "adopted", b.Streams.Stats().Adopted, 1)
	must(t, l.Release())
	again, err := b.Streams.Adopt(handle, "again")
	must(t, err)
	if again.ID() == l.ID() {
		t.Errorf("the id %v was used again", l.ID())
	}
	b.giveUp(again, handle)
	misuse(t, "second release", l.Release())
	equal(t, "adopted", b.Streams.Stats().Adopted, 0)
}

func TestAdoptedStreamIsFencedLikeAnyOther(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	b.launch(l, writes(block))
	equal(t, "a read elsewhere", b.launch(s[0], reads(block)), fenced{1, 0, 1})
	equal(t, "a write on the adopted stream", b.launch(l, writes(block)), fenced{1, 0, 1})
	b.free(block)
	b.giveUp(l, handle)
}

func TestBlocksOfAGivenUpStreamAreFreedBehindItsLastEvent(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)
	l, handle := b.adopt()
	queued, later, used := b.alloc(l, 256), b.alloc(l, 256), b.alloc(l, 256)
	release := b.hold(l)
	b.launch(l, writes(queued, later, used))
	b.launch(s[0], reads(used))
	b.free(queued) // its free is queued on the stream itself
	b.giveUp(l, handle)
	equal(t, "waits of a later free: the last event", b.freeWaits(later), 1)
	b.free(used)
	must(t, b.Runtime.ReapPending(ctx))
	for _, block := range []core.Block{queued, later, used} {
		equal(t, "state under a stalled stream", b.Runtime.State(block.ID), core.Retired)
	}
	release()
	b.drain()
	equal(t, "blocks left", b.Sim.Books().LiveBlocks, 0)
}

// A block's free keeps its place behind everything that was enqueued on its
// stream, declared or not, as if it were freed there.
func TestFreesAreBehindUndeclaredWorkOfAGivenUpStream(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	b.launch(l, writes(block))
	b.sync(l)
	release := b.hold(l)
	b.enqueue(l, reads(block))
	b.giveUp(l, handle)
	b.free(block)
	must(t, b.Runtime.ReapPending(ctx))
	equal(t, "state", b.Runtime.State(block.ID), core.Retired)
	release()
	b.drain()
}

func TestFreesMeetTheGivingUpOfTheirStream(t *testing.T) {
	b := newBench(t, ticking)
	for range 100 {
		l, handle := b.adopt()
		blocks := b.allocs(l, 8, 256)
		var group sync.WaitGroup
		group.Go(func() {
			for _, block := range blocks {
				if _, err := b.Runtime.Deallocate(ctx, block.ID); err != nil {
					t.Errorf("free: %v", err)
				}
			}
		})
		b.giveUp(l, handle) // nothing may name the stream after this
		group.Wait()
	}
	b.drain()
}

func TestAnAdoptedStreamIsNotGivenUpUnderAnOpenLaunch(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	ticket := b.prepare(l, writes(block))
	misuse(t, "release", l.Release())
	b.enqueue(l, writes(block))
	must(t, b.Runtime.FinishUse(ctx, ticket))
	b.free(block)
	b.giveUp(l, handle)
}

func TestGivingUpWithoutAnEventSynchronizes(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	queued, later := b.alloc(l, 256), b.alloc(l, 256)
	b.launch(l, writes(queued, later))
	b.free(queued)
	b.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	b.giveUp(l, handle)
	equal(t, "waits of a later free", b.freeWaits(later), 0)
	b.drain()
}

func TestAFailedGiveUpLeavesTheLeaseAsItWas(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	b.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	b.faults.FailMethod(drivertest.StreamSynchronize, 1, driver.InvalidHandle)
	if err := l.Release(); err == nil {
		t.Fatal("the failure was swallowed")
	}
	b.faults.Clear()
	equal(t, "adopted", b.Streams.Stats().Adopted, 1)
	b.launch(l, writes(block))
	b.free(block)
	b.giveUp(l, handle)
}

func TestSlotsOfRetiredStreamsAreReusedAndClocksStayRight(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)
	shared := b.alloc(s[0], 256)
	b.launch(s[0], writes(shared))
	for range 30 {
		l, handle := b.adopt()
		own := b.alloc(l, 256)
		b.launch(s[0], reads(shared)) // since the drain
		equal(t, "waits of a new stream", b.launch(l, readWrites(shared), writes(own)).waits, 1)
		equal(t, "waits behind the new stream", b.launch(s[0], reads(shared, own)).waits, 1)
		b.giveUp(l, handle)
		b.free(own)
		b.drain()
	}
	b.free(shared)
	if n := b.Sim.Books().Events; n > 12 {
		t.Errorf("after 30 adopted streams %d events exist", n)
	}
	equal(t, "adopted", b.Streams.Stats().Adopted, 0)
	st := b.Runtime.Stats()
	equal(t, "launches of streams that are gone are still counted", st.Launches, 91)
}

func TestCloseReportsAdoptedStreamsThatAreHeld(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	bounded, cancel := within(5)
	defer cancel()
	if err := b.Streams.Close(bounded); err == nil || !strings.Contains(err.Error(), `"adopted"`) {
		t.Errorf("got %v, want the adopted stream named", err)
	}
	b.giveUp(l, handle)
}

// What others are enqueueing on an adopted stream is no reason to refuse its release: it is
// waited for.
func TestReleaseWaitsForWhatIsBeingEnqueued(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	for range 20 { // on a busy machine the launch may end too late
		ticket, finished := b.prepare(l, writes(block)), make(chan error)
		go func() {
			time.Sleep(5 * time.Millisecond)
			finished <- b.Runtime.FinishUse(ctx, ticket)
		}()
		err := l.Release()
		must(t, <-finished)
		if err == nil {
			b.free(block)
			b.drain()
			must(t, b.Sim.StreamDestroy(handle))
			return
		}
	}
	t.Error("a release did not wait for the end of a launch")
}
