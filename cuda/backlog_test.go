package cuda_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// A use that is recorded too late, during a capture, is on the device already:
// conflicting work and the free are kept away until it is fenced.
func TestAUseRecordedInACaptureIsFencedAfterIt(t *testing.T) {
	for name, freed := range map[string]bool{"used": false, "freed": true} {
		t.Run(name, func(t *testing.T) {
			var block core.Block
			var other *cuda.Lease
			var release func()
			before := func(b *bench) {
				used := b.Streams.Leases()[0].ID
				handle, err := b.Streams.Handle(used)
				must(b, err)
				other = b.leases(1)[0]
				block = b.alloc(other, 256)
				b.sync(other)
				release, err = b.Sim.Hold(handle)
				must(b, err)
				b.Cleanup(release)
				must(b, b.kernel.Enqueue(handle, grid, mixArgs(1, writes(block))...))
				b.Cleanup(func() { // after the capture, and before the bench closes
					must(b, b.Runtime.ReapPending(ctx))
					equal(b, "open intents after the capture", b.Runtime.Stats().OpenIntents, 0)
				})
			}
			duringCaptures(t, before, func(b *bench, l *cuda.Lease) {
				defer release() // the bench drains next
				launches := b.Runtime.Stats().Launches
				err := b.Runtime.RecordBlockUse(ctx, block.ID, l.ID())
				misuse(b.T, "the recorded use", err)
				if err != nil && !strings.Contains(err.Error(), "capturing") {
					b.Errorf("%v does not say why", err)
				}
				must(b, b.Runtime.ReapPending(ctx))
				equal(b, "open intents", b.Runtime.Stats().OpenIntents, 1)
				equal(b, "launches", b.Runtime.Stats().Launches, launches)
				_, err = b.Runtime.PrepareBlockUse(ctx, block.ID, other.ID(), core.Write)
				misuse(b.T, "a launch over it", err)
				if freed {
					equal(b, "waits of the free in the capture", b.freeWaits(block), 0)
					return
				}
				b.Cleanup(func() { // the oracle finds what is not ordered
					must(b, b.Runtime.ReapPending(ctx))
					b.launch(other, writes(block))
					b.free(block)
				})
			})
		})
	}
}

func TestTheFreeBehindAHeldUseWaitsForIt(t *testing.T) {
	b := newBench(t, deviceOrdered)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.sync(s[0])
	release := b.hold(s[1])
	b.enqueue(s[1], writes(block))
	g, err := s[1].Capture(ctx, "graph", nil, func(driver.Stream) error {
		misuse(t, "the recorded use", b.Runtime.RecordBlockUse(ctx, block.ID, s[1].ID()))
		b.free(block)
		return nil
	})
	must(t, err)
	misuse(t, "a capture before it is fenced", captureNothing(s[1]))
	waits := b.faults.Calls(drivertest.StreamWait)
	must(t, b.Runtime.ReapPending(ctx))
	equal(t, "waits of the free", b.faults.Calls(drivertest.StreamWait)-waits, 1)
	equal(t, "launches", b.Runtime.Stats().Launches, 0)
	must(t, captureNothing(s[1]))
	release()
	must(t, g.Close())
}

// Without an event it can be neither recorded nor announced.
func TestAUseThatCannotBeHeldBackPoisonsItsBlock(t *testing.T) {
	b := newBench(t, dirty)
	s := b.leases(2)
	block, gone := b.alloc(s[0], 256), b.alloc(s[0], 256)
	b.free(gone)
	g, err := s[1].Capture(ctx, "graph", nil, func(driver.Stream) error {
		useAfterFree(b, "a use of a block that was freed", b.Runtime.RecordBlockUse(ctx, gone.ID, s[1].ID()))
		b.faults.FailEvery(drivertest.EventCreate, driver.OutOfMemory)
		expect.Error(t, b.Runtime.RecordBlockUse(ctx, block.ID, s[1].ID()), core.ErrDriver, "the recorded use")
		b.faults.Clear()
		return nil
	})
	must(t, err)
	must(t, g.Close())
	st := b.Runtime.Stats()
	equal(t, "poisoned blocks", st.Poisoned, 1)
	equal(t, "open intents", st.OpenIntents, 0)
}

// A stream that the driver does not know captures nothing, so the end of the
// launch goes the way of every one that cannot be fenced.
func TestALaunchOnAStreamThatIsGoneIsNotAnnouncedForEver(t *testing.T) {
	b := newBench(t, dirty)
	other := b.leases(1)[0]
	l, handle := b.adopt()
	block, fenced := b.alloc(other, 256), b.alloc(other, 256)
	ticket := b.prepare(l, writes(block))
	b.faults.FailEvery(drivertest.StreamCapturing, driver.InvalidHandle)
	b.faults.FailEvery(drivertest.EventRecord, driver.InvalidHandle)
	b.faults.FailEvery(drivertest.StreamSynchronize, driver.InvalidHandle)
	expect.Error(t, b.Runtime.FinishUse(ctx, ticket), core.ErrDriver, "the finish")
	b.faults.Clear()
	st := b.Runtime.Stats()
	equal(t, "poisoned blocks", st.Poisoned, 1)
	equal(t, "open intents", st.OpenIntents, 0)
	expect.Error(t, b.Runtime.Launch(ctx, other.ID(), declared(writes(block)), nil), core.ErrDriver, "a launch over the block")
	b.launch(other, writes(fenced))
	b.free(fenced)
	b.giveUp(l, handle)
}

// A driver that never says whether a stream captures is not asked for ever. The
// launch is fenced by what puts no event into a graph.
func TestADriverThatNeverSaysIsNotAskedForEver(t *testing.T) {
	b := newBench(t)
	other := b.leases(1)[0]
	l, handle := b.adopt()
	block := b.alloc(other, 256)
	ticket := b.prepare(l, writes(block))
	b.enqueue(l, writes(block))
	b.faults.FailEvery(drivertest.StreamCapturing, driver.Unknown)
	err := b.Runtime.FinishUse(ctx, ticket)
	reaps := 0
	for ; b.Runtime.Stats().OpenIntents > 0 && reaps < 1000; reaps++ {
		if !errors.Is(err, core.ErrDriver) {
			t.Fatalf("reap %d: %v", reaps, err)
		}
		err = b.Runtime.ReapPending(ctx)
	}
	if reaps < 10 || reaps == 1000 {
		t.Errorf("given up after %d reaps", reaps)
	}
	b.faults.Clear()
	equal(t, "poisoned blocks", b.Runtime.Stats().Poisoned, 0)
	b.launch(other, writes(block))
	b.free(block)
	b.giveUp(l, handle)
}

func TestALaunchHeldBackOnTheDefaultStreamSaysWhoCaptures(t *testing.T) {
	b := newBench(t)
	block := b.alloc(b.leases(1)[0], 256)
	ticket, err := b.Runtime.PrepareBlockUse(ctx, block.ID, core.DefaultStream, core.Write)
	must(t, err)
	b.faults.FailEvery(drivertest.StreamCapturing, driver.CaptureImplicit)
	err = b.Runtime.FinishUse(ctx, ticket)
	misuse(t, "the finish", err)
	if err != nil && !strings.Contains(err.Error(), "synchronises with the default stream") {
		t.Errorf("%v: the default stream cannot capture", err)
	}
	b.faults.Clear()
	must(t, b.Runtime.ReapPending(ctx))
	b.free(block)
}

// Without a reaper, who waits for what is held back finds out itself that the
// capture has ended.
func TestALaunchThatWaitsForAHeldUseEndsTheHold(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	g, err := s[1].Capture(ctx, "graph", nil, func(driver.Stream) error {
		misuse(t, "the recorded use", b.Runtime.RecordBlockUse(ctx, block.ID, s[1].ID()))
		bounded, cancel := within(5)
		defer cancel()
		expect.Error(t, b.Runtime.Launch(bounded, s[0].ID(), declared(writes(block)), nil), context.DeadlineExceeded, "a launch during the capture")
		return nil
	})
	must(t, err)
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	must(t, b.kernel.Launch(bounded, b.Runtime, s[0], grid, declared(writes(block)), mixArgs(1, writes(block))...))
	must(t, g.Close())
	b.free(block)
}

// An adopted stream whose last event would go into a capture is not given up,
// and not synchronised either.
func TestGivingUpAStreamDoesNotBreakACapture(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	block := b.alloc(l, 256) // what is late is recorded by the release
	must(t, b.Sim.StreamBeginCapture(handle))
	b.faults.FailMethod(drivertest.StreamCapturing, 1, driver.Unknown) // as if it began behind the first look
	misuse(t, "the release", l.Release())
	g, err := b.Sim.StreamEndCapture(handle)
	must(t, err)
	must(t, b.Sim.GraphDestroy(g))
	b.free(block)
	b.giveUp(l, handle)
}

func TestADrainNamesTheStreamThatCaptures(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	b.free(b.alloc(l, 256))
	g, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error {
		bounded, cancel := within(5)
		defer cancel()
		var misuse *core.StreamMisuseError
		if err := b.Runtime.Drain(bounded); !errors.As(err, &misuse) || misuse.Stream != l.ID() {
			t.Errorf("the drain: %v", err)
		}
		return nil
	})
	must(t, err)
	must(t, g.Close())
}

// The block may be freed while the use is being announced.
func TestAUseOfABlockThatIsFreedMeanwhileIsNotHeldBack(t *testing.T) {
	d := new(creating)
	b := newBench(t, func(c *teststack.Config) {
		count := c.Wrap
		c.Wrap = func(under driver.Driver) driver.Driver { d.Driver = under; return count(d) }
	})
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	g, err := s[1].Capture(ctx, "graph", nil, func(driver.Stream) error {
		d.first = func() { b.free(block) }
		useAfterFree(b, "the recorded use", b.Runtime.RecordBlockUse(ctx, block.ID, s[1].ID()))
		return nil
	})
	must(t, err)
	must(t, g.Close())
	equal(t, "open intents", b.Runtime.Stats().OpenIntents, 0)
} // the bench finds an event that did not come back

// creating calls first before the next event is made.
type creating struct {
	driver.Driver
	first func()
}

func (d *creating) Unwrap() driver.Driver { return d.Driver }

func (d *creating) EventCreate() (driver.Event, error) {
	if first := d.first; first != nil {
		d.first = nil
		first()
	}
	return d.Driver.EventCreate()
}
