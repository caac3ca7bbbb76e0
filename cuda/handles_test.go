package cuda_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// In the tests of this file the device gives the handle of a destroyed stream
// to the next one, as CUDA may: whoever still names the old stream would meet
// the new one's work, and no error would say so.
func reusingHandles(c *teststack.Config) { c.Sim.ReuseStreamHandles = true }

// adoptAgain adopts a stream under the handle of one that is gone.
func (b *bench) adoptAgain(gone driver.Stream) *cuda.Lease {
	b.Helper()
	l, handle := b.adopt()
	if handle != gone {
		b.Fatalf("the device gave out handle %#x, want %#x again", handle, gone)
	}
	return l
}

func TestAHandleThatComesAgainIsAnotherStream(t *testing.T) {
	b := newBench(t, reusingHandles)
	former, handle := b.adopt()
	block, freed := b.alloc(former, 256), b.alloc(former, 256)
	release := b.hold(former)
	b.launch(former, writes(block, freed))
	b.giveUp(former, handle)

	l := b.adoptAgain(handle)
	if l.ID() == former.ID() {
		t.Fatalf("the id %v came again", l.ID())
	}
	own := b.alloc(l, 256)
	equal(t, "a launch over what was written under the former", b.launch(l, readWrites(block), writes(own)), fenced{1, 0, 1})
	equal(t, "a free of what was written under the former", b.freeWaits(freed), 1)
	must(t, b.Runtime.ReapPending(ctx))
	equal(t, "state, while the former stream is held", b.Runtime.State(freed.ID), core.Retired)
	_, err := b.Runtime.PrepareBlockUse(ctx, block.ID, former.ID(), core.Read)
	misuse(t, "a launch under the former id", err)
	_, err = b.Streams.Handle(former.ID())
	misuse(t, "the former id's handle", err)
	release()
	b.free(block, own)
	b.giveUp(l, handle)
	b.drain()
	equal(t, "blocks left", b.Sim.Books().LiveBlocks, 0)
}

// What the former stream leaves behind is not queued on the stream that has
// its handle now: that may never end.
func TestAFormerStreamsFreesDoNotWaitForTheNewOne(t *testing.T) {
	b := newBench(t, reusingHandles)
	former, handle := b.adopt()
	queued, later, elsewhere := b.alloc(former, 256), b.alloc(former, 256), b.alloc(former, 256)
	other := b.leases(1)[0]
	b.launch(former, writes(queued, later, elsewhere))
	b.free(queued) // on the stream itself; its mark is not recorded yet
	b.giveUp(former, handle)

	l := b.adoptAgain(handle)
	release := b.hold(l)
	own := b.alloc(l, 256)
	b.launch(l, writes(own))
	b.free(later)
	b.launch(other, reads(elsewhere))
	b.free(elsewhere)
	b.drain() // while the new stream is held
	for _, block := range []core.Block{queued, later, elsewhere} {
		equal(t, "state", b.Runtime.State(block.ID), core.Freed)
	}
	b.free(own)
	must(t, b.Runtime.ReapPending(ctx))
	equal(t, "state of the new stream's block", b.Runtime.State(own.ID), core.Retired)
	release()
	b.drain()
	b.giveUp(l, handle)
}

// A hundred streams under two handles, each with work that outlives it. The
// oracle sees whether any order was lost, or taken over from a namesake.
func TestManyStreamsUnderTheHandlesOfOthers(t *testing.T) {
	for _, deviceOrder := range []bool{false, true} {
		b := newBench(t, reusingHandles, func(c *teststack.Config) { c.DeviceOrder = deviceOrder })
		rng := rand.New(rand.NewPCG(5, 5))
		home := b.leases(1)[0]
		shared := b.allocs(home, 4, 256)
		b.launch(home, writes(shared...))
		ids, handles := map[core.StreamID]bool{}, map[driver.Stream]bool{}
		for range 100 {
			l, handle := b.adopt()
			handles[handle] = true
			if ids[l.ID()] {
				t.Fatalf("the id %v came again", l.ID())
			}
			ids[l.ID()] = true
			own := b.alloc(l, 256)
			b.launch(l, readWrites(shared[rng.IntN(4)]), writes(own))
			b.launch(home, reads(own), readWrites(shared[rng.IntN(4)]))
			if rng.IntN(2) == 0 {
				b.free(own)
			}
			b.giveUp(l, handle)
			if b.Runtime.State(own.ID) == core.Live {
				b.free(own)
			}
			if rng.IntN(4) == 0 {
				b.drain()
			}
		}
		b.free(shared...)
		b.drain()
		if len(handles) > 2 { // the stream of their frees has taken one
			t.Errorf("%d handles", len(handles))
		}
		if n := b.Streams.Slots(); !deviceOrder && n > 110 {
			t.Errorf("%d slots", n)
		}
	}
}

// The event behind the allocations of a stream that was given up without a
// last event is not recorded on whatever has its handle now.
func TestAReadinessIsNotRecordedOnAStreamThatIsGone(t *testing.T) {
	b := newBench(t, reusingHandles, func(c *teststack.Config) { c.DeviceOrder = true })
	home := b.leases(1)[0]
	former, handle := b.adopt()
	block := b.alloc(former, 256)
	b.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	b.giveUp(former, handle) // synchronises
	l := b.adoptAgain(handle)
	b.faults.SetLog(true)
	b.launch(home, writes(block))
	for _, call := range b.faults.Log() {
		if call.Stream == handle {
			t.Errorf("%v named the new stream", call.Method)
		}
	}
	b.giveUp(l, handle)
	b.free(block)
}

// A stream is not given up while somebody records a use of it, whose last
// resort is to synchronise it.
func TestAStreamIsNotGivenUpUnderARecordedUse(t *testing.T) {
	var during func()
	b := newBench(t, func(c *teststack.Config) {
		faults := c.Wrap
		c.Wrap = func(d driver.Driver) driver.Driver { return &recording{faults(d), &during} }
	})
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	b.launch(l, writes(block))
	asked := 0
	during = func() {
		asked++
		misuse(t, "release", l.Release())
	}
	must(t, b.Runtime.RecordBlockUse(ctx, block.ID, l.ID()))
	during = nil
	equal(t, "releases tried", asked, 1)
	b.free(block)
	b.giveUp(l, handle)
}

// recording calls during in the middle of each record.
type recording struct {
	driver.Driver
	during *func()
}

func (r *recording) EventRecord(e driver.Event, s driver.Stream) error {
	if *r.during != nil {
		(*r.during)()
	}
	return r.Driver.EventRecord(e, s)
}

// A copy without a block is no launch, but counts as one until its buffer is
// kept: an event behind it must be recorded, on this stream and no other.
func TestAnAdoptedStreamIsNotGivenUpUnderACopyWithoutFences(t *testing.T) {
	var during func()
	b := newBench(t, func(c *teststack.Config) {
		faults := c.Wrap
		c.Wrap = func(d driver.Driver) driver.Driver { return &copying{faults(d), &during} }
	})
	dst := b.legacy()
	l, handle := b.adopt()
	asked := 0
	during = func() {
		asked++
		misuse(t, "release", l.Release())
	}
	must(t, cuda.CopyToDevice(ctx, dst, l.ID(), make([]uint32, 64)))
	equal(t, "releases tried", asked, 1)
	b.giveUp(l, handle)
}

// copying calls during after each copy to the device.
type copying struct {
	driver.Driver
	during *func()
}

func (c *copying) CopyToDeviceAsync(dst uint64, src []byte, s driver.Stream) error {
	err := c.Driver.CopyToDeviceAsync(dst, src, s)
	(*c.during)()
	return err
}

func TestOnlyOneOfManyAdopts(t *testing.T) {
	b := newBench(t)
	for range 200 {
		handle, err := b.Sim.StreamCreate()
		must(t, err)
		var winner atomic.Pointer[cuda.Lease]
		var won atomic.Int32
		var group sync.WaitGroup
		start := make(chan struct{})
		for range 8 {
			group.Go(func() {
				<-start
				l, err := b.Streams.Adopt(handle, "one of many")
				switch {
				case err == nil:
					won.Add(1)
					winner.Store(l)
				case !errors.Is(err, core.ErrStreamMisuse):
					t.Error(err)
				}
			})
		}
		close(start)
		group.Wait()
		equal(t, "adoptions", won.Load(), 1)
		equal(t, "adopted", b.Streams.Stats().Adopted, 1)
		b.giveUp(winner.Load(), handle)
	}
}

func TestThePoolsOwnStreamsAreNotAdopted(t *testing.T) {
	b := newBench(t, reusingHandles)
	l := b.Lease(t, "pool")
	_, err := b.Streams.Adopt(l.Handle(), "twice")
	misuse(t, "adopting a leased stream", err)
	handle := l.Handle()
	must(t, l.Release())
	_, err = b.Streams.Adopt(handle, "twice")
	misuse(t, "adopting an idle stream", err)

	adopted, outside := b.adopt()
	block := b.alloc(adopted, 256)
	b.giveUp(adopted, outside)
	b.faults.SetLog(true)
	b.free(block) // makes the stream on which frees of streams that are gone run
	for _, call := range b.faults.Log() {
		if call.Method == drivertest.MemFreeAsync {
			_, err = b.Streams.Adopt(call.Stream, "twice")
			misuse(t, "adopting the stream of such frees", err)
		}
	}
	b.drain()
}

func TestEventsOutliveTheStreamsOfAClosedPool(t *testing.T) {
	b := newBench(t, reusingHandles, dirty)
	l, err := b.Streams.Acquire(ctx, "gone")
	must(t, err)
	onDefault, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 256})
	must(t, err)
	queued, live := b.alloc(l, 256), b.alloc(l, 256)
	b.launch(l, writes(onDefault, queued, live))
	handle := l.Handle()
	b.free(queued) // behind no mark yet
	must(t, l.Release())
	must(t, b.Streams.Close(ctx))

	foreign, err := b.Sim.StreamCreate()
	must(t, err)
	equal(t, "the handle of somebody else's stream", foreign, handle)
	b.faults.SetLog(true)
	equal(t, "waits of the free of a block of the default stream", b.freeWaits(onDefault), 0)
	expect.ErrorOf(b.Runtime.Deallocate(ctx, live.ID))(t, core.ErrClosed, "a free on a stream that is gone")
	b.drain()
	equal(t, "state of what was freed before", b.Runtime.State(queued.ID), core.Freed)
	equal(t, "state of what could not be freed", b.Runtime.State(live.ID), core.Live)
	equal(t, "frees measured", b.Runtime.Stats().FreeToReusable.Count(), 2)
	for _, call := range b.faults.Log() {
		if call.Stream == handle {
			t.Errorf("%v named the stream of somebody else", call.Method)
		}
	}
	held := b.Runtime.Stats().Events // by the block that is still there
	equal(t, "events", uint64(b.Sim.Books().Events), held)
	if held == 0 || held > 2 {
		t.Errorf("%d events are left", held)
	}
	must(t, b.Sim.StreamDestroy(foreign))
	if findings := b.Sim.Findings(); len(findings) > 0 {
		t.Errorf("the oracle: %v", findings)
	}
}

// Streams that come and go count on where their slot stopped, up to the last
// numbers that there are, and across the places where smaller or signed
// integers would turn.
func TestSequencesCountOnFarFromZero(t *testing.T) {
	for _, from := range []uint64{1<<31 - 200, 1<<32 - 200, 1<<53 - 200, 1<<63 - 200, math.MaxUint64 - 100_000} {
		b := newBench(t)
		b.Streams.CountFrom(from)
		s := b.leases(3)
		shared := b.allocs(s[0], 3, 256)
		nearest := b.Streams.NearestToTheEnd()
		for i := range 120 {
			l, handle := b.adopt()
			own := b.alloc(l, 256)
			b.launch(s[i%3], readWrites(shared[i%3]))
			equal(t, "waits of a new stream", b.launch(l, readWrites(shared[i%3]), writes(own)).waits, 1)
			equal(t, "waits behind it", b.launch(s[(i+1)%3], reads(shared[i%3], own)).waits, 1)
			b.giveUp(l, handle)
			b.free(own)
			if i%10 == 0 {
				b.drain()
			}
			if now := b.Streams.NearestToTheEnd(); now > nearest {
				t.Fatalf("from %d: the furthest count went back by %d", from, now-nearest)
			} else {
				nearest = now
			}
		}
		b.free(shared...)
		b.drain()
		if nearest >= math.MaxUint64-from {
			t.Errorf("from %d: nobody counted on", from)
		}
	}
}
