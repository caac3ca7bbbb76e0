package cuda_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// duringCaptures runs test within a capture of a leased stream by the runtime,
// and of an adopted one behind its back. The capture must end well each time,
// and its graph hold what the test enqueued on the handle and nothing else.
func duringCaptures(t *testing.T, change func(*bench), test func(b *bench, l *cuda.Lease)) {
	t.Run("leased", func(t *testing.T) {
		b := newBench(t)
		l := b.leases(1)[0]
		if change != nil {
			change(b)
		}
		g, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error { test(b, l); return nil })
		must(t, err)
		must(t, g.Launch(ctx, b.Runtime, l))
		must(t, g.Close())
		b.drain()
	})
	t.Run("adopted", func(t *testing.T) {
		b := newBench(t)
		l, handle := b.adopt()
		if change != nil {
			change(b)
		}
		must(t, b.Sim.StreamBeginCapture(handle))
		test(b, l)
		g, err := b.Sim.StreamEndCapture(handle)
		must(t, err)
		must(t, b.Sim.GraphLaunch(g, handle))
		must(t, b.Sim.GraphDestroy(g))
		b.drain()
		b.giveUp(l, handle)
	})
}

func TestWorkOnACapturingStreamIsRefusedAndTheCaptureEndsWell(t *testing.T) {
	var elsewhere core.Block
	duringCaptures(t, nil, func(b *bench, l *cuda.Lease) {
		other := b.leases(1)[0]
		elsewhere = b.alloc(other, 256)
		ops, err := cuda.NewDeviceOps(b.Driver, b.Streams, guardkernels.Image())
		must(b, err)
		untracked := cuda.NewUntrackedManager(b.Driver, b.Streams, 0)
		slice, err := cuda.Alloc[uint32](ctx, untracked, 4, cuda.AllocOptions{})
		must(b, err)
		values := make([]uint32, 4)
		for what, call := range map[string]func() error{
			"an allocation": func() error { _, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 8, Stream: l.ID()}); return err },
			"a launch": func() error {
				return b.kernel.Launch(ctx, b.Runtime, l, grid, declared(writes(elsewhere)), mixArgs(1, writes(elsewhere))...)
			},
			"a launch of nothing": func() error { return b.Runtime.Launch(ctx, l.ID(), nil, func(context.Context) error { return nil }) },
			"a synchronisation":   func() error { return b.Streams.Synchronize(ctx, l.ID()) },
			"a release":           l.Release,
			"another capture": func() error {
				_, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error { return nil })
				return err
			},
			"a copy without fences":     func() error { return cuda.CopyToDevice(ctx, slice, l.ID(), values) },
			"a guard's kernel":          func() error { return ops.Fill(ctx, l.ID(), []deviceops.Region{{Ptr: elsewhere.ID.Ptr, Bytes: 8}}) },
			"a guard's synchronisation": func() error { return ops.Synchronize(ctx, l.ID()) },
		} {
			err := call()
			misuse(b.T, what, err)
			if err != nil && !strings.Contains(err.Error(), "capturing") {
				b.Errorf("%s: %v does not say why", what, err)
			}
		}
		equal(b, "poisoned blocks", b.Runtime.Stats().Poisoned, 0)
		equal(b, "open intents", b.Runtime.Stats().OpenIntents, 0)
		must(b, errors.Join(slice.Free(ctx), ops.Close(ctx)))
		b.launch(other, writes(elsewhere)) // and everything else goes on
		b.free(elsewhere)
		b.sync(other)
	})
}

// A free is not lost, and frees nothing into the graph.
func TestAFreeOnACapturingStreamIsHeldBack(t *testing.T) {
	var block core.Block
	own := func(b *bench) {
		for _, l := range b.Streams.Leases() {
			handle, err := b.Streams.Handle(l.ID)
			must(b, err)
			var allocErr error
			block, allocErr = b.Runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: l.ID, Tag: "test"})
			must(b, allocErr)
			must(b, b.Driver.MemsetAsync(block.ID.Ptr, 1, 256, handle))
		}
	}
	duringCaptures(t, own, func(b *bench, l *cuda.Lease) {
		freed, err := b.Runtime.Deallocate(ctx, block.ID)
		must(b, err)
		equal(b, "state", freed.State, core.Retired)
		useAfterFree(b, "a second free", func() error { _, err := b.Runtime.Deallocate(ctx, block.ID); return err }())
		for range 3 {
			must(b, b.Runtime.ReapPending(ctx))
		}
		st := b.Runtime.Stats()
		equal(b, "pending blocks", st.Pending.Blocks, 1)
		equal(b, "failures", st.Failures, 0)
		bounded, cancel := within(5)
		defer cancel()
		err = b.Runtime.Drain(bounded)
		misuse(b.T, "a drain", err)
		expect.Error(b, err, context.DeadlineExceeded, "a drain")
		equal(b, "blocks on the device", b.Sim.Books().LiveBlocks, 1)
	})
}

func TestTheReaperKeepsOutOfACapture(t *testing.T) {
	var blocks []core.Block
	before := func(b *bench) {
		for _, l := range b.Streams.Leases() {
			for range 3 {
				block, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: l.ID, Tag: "test"})
				must(b, err)
				blocks = append(blocks, block)
				b.free(block)
			}
		}
	}
	duringCaptures(t, before, func(b *bench, l *cuda.Lease) {
		b.faults.SetLog(true)
		for range 3 {
			must(b, b.Runtime.ReapPending(ctx))
		}
		b.faults.SetLog(false)
		for _, c := range b.faults.Log() {
			if c.Stream == l.Handle() && c.Method != drivertest.StreamCapturing {
				b.Errorf("%v on a capturing stream", c.Method)
			}
		}
		equal(b, "pending blocks", b.Runtime.Stats().Pending.Blocks, 3)
	})
}

// Lease.Capture records what is late before it begins, so that other streams
// can go on.
func TestReadinessIsRecordedBeforeACapture(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	g, err := s[0].Capture(ctx, "graph", nil, func(driver.Stream) error {
		equal(t, "waits", b.launch(s[1], writes(block)).waits, 1)
		return nil
	})
	must(t, err)
	must(t, g.Close())
	b.free(block)
}

// Behind the runtime's back it cannot: the launch is refused, not recorded.
func TestReadinessIsNotRecordedIntoACapture(t *testing.T) {
	b := newBench(t)
	other := b.leases(1)[0]
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	must(t, b.Sim.StreamBeginCapture(handle))
	equal(t, "records", b.recordsOf(func() {
		_, err := b.Runtime.PrepareBlockUse(ctx, block.ID, other.ID(), core.Write)
		misuse(t, "a launch elsewhere", err)
	}), 0)
	g, err := b.Sim.StreamEndCapture(handle)
	must(t, err)
	must(t, b.Sim.GraphDestroy(g))
	equal(t, "waits", b.launch(other, writes(block)).waits, 1)
	b.free(block)
	b.giveUp(l, handle)
}

// The launch was announced before its stream began to capture, so its end can
// be recorded only when the capture has ended.
func TestALaunchThatFinishesInACaptureIsFencedAfterIt(t *testing.T) {
	b := newBench(t)
	other := b.leases(1)[0]
	l, handle := b.adopt()
	block, freed := b.alloc(l, 256), b.alloc(l, 256)
	ticket := b.prepare(l, writes(block, freed))
	release := b.hold(l)
	b.enqueue(l, writes(block, freed))
	must(t, b.Sim.StreamBeginCapture(handle))
	equal(t, "records", b.recordsOf(func() { misuse(t, "the finish", b.Runtime.FinishUse(ctx, ticket)) }), 0)
	b.free(freed)
	must(t, b.Runtime.ReapPending(ctx))
	_, err := b.Runtime.PrepareBlockUse(ctx, block.ID, other.ID(), core.Write)
	misuse(t, "a launch over one that is not fenced", err)
	misuse(t, "giving the stream up", l.Release())
	g, err := b.Sim.StreamEndCapture(handle)
	must(t, err)
	must(t, b.Sim.GraphDestroy(g))
	must(t, b.Runtime.ReapPending(ctx))
	st := b.Runtime.Stats()
	equal(t, "launches", st.Launches, 1)
	equal(t, "open intents", st.OpenIntents, 0)
	equal(t, "waits", b.launch(other, writes(block)).waits, 1)
	release()
	b.free(block)
	b.giveUp(l, handle)
}

// A capture that was begun on the handle of a lease must not go to the next
// taker with the stream.
func TestAStreamThatCapturesIsNotGivenBack(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	must(t, b.Sim.StreamBeginCapture(l.Handle()))
	misuse(t, "release", l.Release())
	misuse(t, "capture", func() error {
		_, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error { return nil })
		return err
	}())
	g, err := b.Sim.StreamEndCapture(l.Handle())
	must(t, err)
	must(t, b.Sim.GraphDestroy(g))
	must(t, l.Release())
}

func TestClosingDuringACaptureEndsInAnError(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	block := b.alloc(l, 256)
	g, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error {
		b.free(block)
		for what, end := range map[string]func(context.Context) error{"runtime": b.Async.Close, "streams": b.Streams.Close} {
			bounded, cancel := within(10)
			start := time.Now()
			if err := end(bounded); err == nil {
				t.Errorf("closing the %s: no error", what)
			} else if time.Since(start) > patience/2 {
				t.Errorf("closing the %s took %v", what, time.Since(start))
			}
			cancel()
		}
		return nil
	})
	must(t, err)
	must(t, g.Close())
	equal(t, "blocks before the second Close", b.Sim.Books().LiveBlocks, 1)
	must(t, b.Runtime.ReapPending(ctx))
} // the bench closes both again, and finds that what was held back is not lost

// A capture that the driver does not end keeps its streams, and nobody gets
// them, until it has been ended.
func TestACaptureThatCannotBeEndedIsEndedByTheRelease(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.faults.FailMethod(drivertest.StreamEndCapture, 1, driver.Unknown)
	b.faults.FailMethod(drivertest.StreamEndCapture, 2, driver.Unknown)
	b.faults.FailMethod(drivertest.StreamEndCapture, 3, driver.Unknown)
	_, err := s[0].Capture(ctx, "graph", nil, func(driver.Stream) error { return nil }, s[1])
	if !errors.Is(err, core.ErrDriver) {
		t.Fatalf("got %v", err)
	}
	for _, l := range s {
		_, err := b.Runtime.PrepareBlockUse(ctx, block.ID, l.ID(), core.Write)
		misuse(t, "a launch on a stream whose capture did not end", err)
	}
	misuse(t, "release of the fork", s[1].Release())
	g := b.capture(s[0], b.kernel, writes(block)) // the third failure, and then it ends
	must(t, g.Launch(ctx, b.Runtime, s[1]))
	b.free(block)
	must(t, g.Close())
	must(t, errors.Join(s[0].Release(), s[1].Release()))
	equal(t, "graphs on the device", b.Sim.Books().Graphs, 0)
}

// An event of a lease's stream that could not be recorded in time is not
// recorded into its capture.
func TestACaptureWhoseReadinessCannotBeRecordedDoesNotBegin(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	block := b.alloc(l, 256)
	for _, m := range []drivertest.Method{drivertest.EventRecord, drivertest.StreamCapturing, drivertest.StreamBeginCapture} {
		b.faults.FailMethod(m, 1, driver.InvalidValue)
		if _, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error { return nil }); !errors.Is(err, core.ErrDriver) {
			t.Errorf("%v fails: %v", m, err)
		}
		b.faults.Clear()
	}
	b.launch(l, writes(block))
	b.free(block)
}

func TestADriverThatDoesNotSayIsNotTakenForOneThatDoesNotCapture(t *testing.T) {
	b := newBench(t)
	other := b.leases(1)[0]
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	b.faults.FailEvery(drivertest.StreamCapturing, driver.InvalidHandle)
	for what, call := range map[string]func() error{
		"allocation": func() error { _, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 8, Stream: l.ID()}); return err },
		"launch":     func() error { return b.Runtime.Launch(ctx, l.ID(), declared(writes(block)), nil) },
		"free":       func() error { _, err := b.Runtime.Deallocate(ctx, block.ID); return err },
	} {
		expect.Error(t, call(), core.ErrDriver, what)
	}
	b.faults.Clear()
	b.faults.FailEvery(drivertest.StreamCapturing, driver.Unknown)
	expect.Error(t, b.Runtime.RecordBlockUse(ctx, block.ID, l.ID()), core.ErrDriver, "a recorded use")
	b.faults.Clear()
	_, err := b.Runtime.PrepareBlockUse(ctx, block.ID, other.ID(), core.Write)
	misuse(t, "a launch over a use that is not fenced", err)
	must(t, b.Runtime.ReapPending(ctx))
	equal(t, "state", b.Runtime.State(block.ID), core.Live)
	equal(t, "poisoned blocks", b.Runtime.Stats().Poisoned, 0)
	b.launch(other, writes(block))
	b.free(block)
	b.giveUp(l, handle)
}

// prepared has nothing served at once.
func prepared(c *teststack.Config) { c.Layers = []core.Layer{pathtest.Put(nil, 0, 1)} }

// On a GPU nothing may be enqueued on the default stream while a stream that synchronises with it captures. So what
// would be is refused or waits; a block that comes from the own pool's memory of that stream, or goes there, enqueues nothing.
func TestTheDefaultStreamIsLeftAloneWhereItWouldBreakACapture(t *testing.T) {
	for name, how := range map[string][]func(*teststack.Config){"async": nil, "pool": {pooled(0)}, "pool, prepared": {pooled(0), prepared}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, how...)
			pool := b.Pool != nil
			leased := b.leases(1)[0]
			request := func(r core.Request) (core.Block, error) { return b.Runtime.Allocate(ctx, r) }
			var live [3]core.Block
			for i := range live {
				var err error
				live[i], err = request(core.Request{Bytes: 256})
				must(t, err)
			}
			b.launch(leased, writes(live[1], live[2]))
			b.free(live[2])
			b.sync(leased)
			b.drain()
			release := b.hold(leased)
			b.launch(leased, writes(live[1]))

			b.faults.FailEvery(drivertest.StreamCapturing, driver.CaptureImplicit)
			b.faults.SetLog(true)
			fresh, err := request(core.Request{Bytes: 256})
			if pool {
				must(t, err)
				misuse(t, "a launch elsewhere, for which the block's readiness would be recorded", b.Runtime.Launch(ctx, leased.ID(), declared(writes(fresh)), nil))
			} else {
				misuse(t, "an allocation of memory at hand", err)
			}
			_, err = request(core.Request{Bytes: 64 << 20})
			misuse(t, "an allocation for which there is no memory at hand", err)
			_, err = request(core.Request{Bytes: 256, Isolated: true})
			misuse(t, "an isolated allocation", err)
			for i, want := range []core.BlockState{core.Retired, core.Retired} {
				if pool && i == 0 {
					want = core.Freed
				}
				freed, err := b.Runtime.Deallocate(ctx, live[i].ID)
				must(t, err)
				equal(t, "state of a block that another stream uses, if it is the second", freed.State, want)
			}
			must(t, b.Runtime.ReapPending(ctx))
			b.launch(leased) // a leased stream does not synchronise with it
			b.faults.SetLog(false)
			for _, c := range b.faults.Log() {
				switch c.Method {
				case drivertest.EventRecord, drivertest.StreamWait, drivertest.MemAllocAsync, drivertest.MemFreeAsync:
					if c.Stream == 0 {
						t.Errorf("%v on the default stream", c.Method)
					}
				}
			}
			b.faults.Clear()

			release()
			if pool {
				b.launch(leased, writes(fresh))
				b.free(fresh)
			}
			b.drain()
			equal(t, "pending", b.Runtime.Stats().Pending.Blocks, 0)
			block, err := request(core.Request{Bytes: 64 << 20})
			must(t, err)
			b.free(block)
		})
	}
}

// What it costs: nothing of the driver's on a leased stream, a question at
// either half of a launch on an adopted one.
func TestOnlyStreamsOfOthersAreAskedAbout(t *testing.T) {
	b := newBench(t)
	leased := b.leases(1)[0]
	l, handle := b.adopt()
	block := b.alloc(leased, 256)
	late, shared := b.alloc(l, 256), b.alloc(l, 256)
	for _, c := range []struct {
		of   func()
		asks uint64
	}{{func() { b.launch(l, writes(late)) }, 3}, {func() { b.free(late) }, 1}, {func() { late = b.alloc(l, 256) }, 1}} {
		before := b.faults.Calls(drivertest.StreamCapturing)
		c.of()
		equal(t, "questions of a launch that an event is recorded for, a free, an allocation", b.faults.Calls(drivertest.StreamCapturing)-before, c.asks)
	}
	b.free(late, shared)
	for _, c := range []struct {
		on   *cuda.Lease
		asks uint64
	}{{leased, 0}, {l, 2}} {
		b.launch(c.on, writes(block))
		before := b.faults.Calls(drivertest.StreamCapturing)
		b.launch(c.on, writes(block))
		equal(t, "questions of a launch", b.faults.Calls(drivertest.StreamCapturing)-before, c.asks)
	}
	b.free(block)
	b.giveUp(l, handle)
}

func TestALaunchWhoseEndNobodyCanPlaceIsFencedLater(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	ticket := b.prepare(l, writes(block))
	b.enqueue(l, writes(block))
	b.faults.FailEvery(drivertest.StreamCapturing, driver.Unknown)
	for what, err := range map[string]error{"finish": b.Runtime.FinishUse(ctx, ticket), "reap": b.Runtime.ReapPending(ctx), "drain": b.Runtime.Drain(ctx)} {
		expect.Error(t, err, core.ErrDriver, what)
	}
	b.faults.Clear()
	must(t, b.Runtime.ReapPending(ctx))
	equal(t, "launches", b.Runtime.Stats().Launches, 1)
	b.free(block)
	b.giveUp(l, handle)
}
