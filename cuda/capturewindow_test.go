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
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// These are about captures that begin between a look at the stream and the call
// that the look was for.

// beforeWork calls work before each call that enqueues some.
type beforeWork struct {
	driver.Driver
	work func()
}

func (d *beforeWork) Unwrap() driver.Driver { return d.Driver }

func (d *beforeWork) CopyToDeviceAsync(dst uint64, src []byte, s driver.Stream) error {
	d.work()
	return d.Driver.CopyToDeviceAsync(dst, src, s)
}

func (d *beforeWork) CopyFromPeerAsync(dst uint64, peer driver.Driver, src, n uint64, s driver.Stream) error {
	d.work()
	return d.Driver.CopyFromPeerAsync(dst, peer, src, n, s)
}

func (d *beforeWork) Launch(l *driver.Launch) error {
	d.work()
	return d.Driver.Launch(l)
}

func captureNothing(l *cuda.Lease) error {
	g, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error { return nil })
	if err != nil {
		return err
	}
	return g.Close()
}

func TestNoCaptureBeginsUnderWorkOutsideOfLaunches(t *testing.T) {
	d := &beforeWork{work: func() {}}
	a := newBench(t)
	b := newBench(t, func(c *teststack.Config) {
		c.Sim.Ordinal = 1
		count := c.Wrap
		c.Wrap = func(under driver.Driver) driver.Driver { d.Driver = under; return count(d) }
	})
	there, l := a.leases(1)[0], b.leases(1)[0]
	ops, err := cuda.NewDeviceOps(b.Driver, b.Streams, guardkernels.Image())
	must(t, err)
	from, err := cuda.Alloc[uint32](ctx, cuda.NewUntrackedManager(a.Driver, a.Streams, 0), 4, cuda.AllocOptions{})
	must(t, err)
	to, err := cuda.Alloc[uint32](ctx, cuda.NewUntrackedManager(b.Driver, b.Streams, 0), 4, cuda.AllocOptions{})
	must(t, err)
	for what, call := range map[string]func() error{
		"a copy":           func() error { return cuda.CopyToDevice(ctx, to, l.ID(), []uint32{1, 2, 3, 4}) },
		"a peer copy":      func() error { return cuda.CopyFromPeer(ctx, to, l.ID(), from, there.ID()) },
		"a guard's kernel": func() error { return ops.Fill(ctx, l.ID(), []deviceops.Region{{Ptr: to.Ptr(), Bytes: 8}}) },
	} {
		tried := 0
		d.work = func() {
			tried++
			misuse(t, "a capture under "+what, captureNothing(l))
			if what == "a peer copy" {
				misuse(t, "a capture at the source of "+what, captureNothing(there))
			}
		}
		must(t, call())
		equal(t, "captures tried under "+what, tried, 1)
		must(t, errors.Join(captureNothing(l), captureNothing(there))) // and it keeps nobody out for longer
	}
	b.sync(l)
	a.sync(there)
	must(t, errors.Join(from.Free(ctx), to.Free(ctx), ops.Close(ctx)))
}

// A copy that fails before or behind its first half leaves its streams open for captures.
func TestAPeerCopyThatFailsKeepsNoCaptureOut(t *testing.T) {
	a := newBench(t)
	b := newBench(t, func(c *teststack.Config) { c.Sim.Ordinal = 1 })
	there, l := a.leases(1)[0], b.leases(1)[0]
	from, err := cuda.Alloc[uint32](ctx, cuda.NewUntrackedManager(a.Driver, a.Streams, 0), 4, cuda.AllocOptions{})
	must(t, err)
	to, err := cuda.Alloc[uint32](ctx, cuda.NewUntrackedManager(b.Driver, b.Streams, 0), 4, cuda.AllocOptions{})
	must(t, err)
	for _, captured := range []*cuda.Lease{there, l} {
		g, err := captured.Capture(ctx, "graph", nil, func(driver.Stream) error {
			misuse(t, "a copy", cuda.CopyFromPeer(ctx, to, l.ID(), from, there.ID()))
			return nil
		})
		must(t, err)
		must(t, g.Close())
	}
	b.faults.FailMethod(drivertest.CopyFromPeerAsync, 1, driver.InvalidValue)
	expect.Error(t, cuda.CopyFromPeer(ctx, to, l.ID(), from, there.ID()), core.ErrDriver, "the copy")
	must(t, errors.Join(captureNothing(l), captureNothing(there), from.Free(ctx), to.Free(ctx)))
}

// The guard waits for what was enqueued before the capture, and asks nothing
// of the stream meanwhile that would break it.
func TestTheGuardsSynchronisationGoesOnUnderACapture(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	ops, err := cuda.NewDeviceOps(b.Driver, b.Streams, guardkernels.Image())
	must(t, err)
	block := b.alloc(l, 256)
	release := b.hold(l)
	b.launch(l, writes(block))
	asked := b.faults.Calls(drivertest.EventQuery)
	done := make(chan error, 1)
	go func() { done <- ops.Synchronize(context.Background(), l.ID()) }()
	for b.faults.Calls(drivertest.EventQuery) == asked {
		time.Sleep(time.Millisecond)
	}
	g, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error {
		for asked = b.faults.Calls(drivertest.EventQuery); b.faults.Calls(drivertest.EventQuery) < asked+3; {
			time.Sleep(time.Millisecond)
		}
		release()
		return <-done
	})
	must(t, err)
	must(t, g.Close())
	b.free(block)
	must(t, ops.Close(ctx))
}

// A capture that is refused, or does not begin, leaves its streams as they were.
func TestACaptureWithBadForksChangesNothing(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	try := func(forks ...*cuda.Lease) error {
		_, err := s[0].Capture(ctx, "graph", nil, func(driver.Stream) error { return nil }, forks...)
		return err
	}
	expect.Error(t, try(s[1], nil), core.ErrInvalidRequest, "a nil fork")
	misuse(t, "a fork named twice", try(s[1], s[1]))
	misuse(t, "the lease itself", try(s[0]))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a lease that no pool made was taken")
			}
		}()
		_ = try(s[1], new(cuda.Lease))
	}()
	must(t, errors.Join(captureNothing(s[0]), captureNothing(s[1]), s[0].Release(), s[1].Release()))
}

func TestAReleaseDoesNotWaitForAnAllocation(t *testing.T) {
	b, slow := newSlowBench(t)
	l := b.leases(1)[0]
	arrived, release := slow.stall(t, drivertest.MemAllocAsync, false)
	var block core.Block
	b.during(arrived, release, func() error { return b.tryAlloc(l, &block) }, l.Release)
	b.free(block)
}

// asking calls then after the driver was asked whether a stream captures.
type asking struct {
	driver.Driver
	then func()
}

func (d *asking) Unwrap() driver.Driver { return d.Driver }

func (d *asking) StreamCapturing(s driver.Stream) (bool, error) {
	capturing, err := d.Driver.StreamCapturing(s)
	if then := d.then; then != nil {
		d.then = nil
		then()
	}
	return capturing, err
}

// The lease may be released after the capture has looked at it.
func TestNoCaptureBeginsUnderALeaseThatIsReleasedMeanwhile(t *testing.T) {
	d := new(asking)
	b := newBench(t, func(c *teststack.Config) {
		count := c.Wrap
		c.Wrap = func(under driver.Driver) driver.Driver { d.Driver = under; return count(d) }
	})
	l := b.leases(1)[0]
	released := false
	d.then = func() {
		must(t, l.Release())
		released = true
	}
	misuse(t, "the capture", captureNothing(l))
	equal(t, "released", released, true)
	must(t, captureNothing(b.leases(1)[0]))
}

// Either the capture is refused, or the release: nobody gets a stream that
// captures.
func TestReleasesAndCapturesAtOnce(t *testing.T) {
	b := newBench(t)
	captures := 0
	for range 300 {
		l := b.leases(1)[0]
		released := make(chan error)
		go func() { released <- l.Release() }()
		var during error
		g, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error {
			during = <-released
			return nil
		})
		if err == nil {
			captures++
			misuse(t, "a release during a capture", during)
			must(t, errors.Join(g.Close(), l.Release()))
			continue
		}
		misuse(t, "a capture during a release", err)
		if err := <-released; err != nil {
			misuse(t, "a release during a capture", err)
			must(t, l.Release())
		}
	}
	t.Logf("%d captures began", captures)
}

func TestACaptureTellsWhatItsBlocksAreNot(t *testing.T) {
	a := newBench(t)
	b := newBench(t, func(c *teststack.Config) { c.Sim.Ordinal = 1 })
	l, there := a.leases(1)[0], b.leases(1)[0]
	direct := cuda.NewDirectResource(a.Driver)
	live, err := direct.Allocate(ctx, core.Request{Bytes: 64})
	must(t, err)
	elsewhere := b.alloc(there, 64)
	over := func(block core.Block) error {
		_, err := l.Capture(ctx, "graph", declared(reads(block)), func(driver.Stream) error { return nil })
		return err
	}
	misuse(t, "a block of another device", over(elsewhere))
	err = over(live)
	useAfterFree(a, "a block of another resource", err)
	if err != nil && !strings.Contains(err.Error(), "not allocated by the resource of this stream pool") {
		t.Errorf("%v calls it freed", err)
	}
	_, err = direct.Deallocate(ctx, live.ID)
	must(t, err)
	b.free(elsewhere)
}

// What an error of the end of a capture means depends on its code.
func TestTheEndOfACaptureIsExplained(t *testing.T) {
	for _, c := range []struct {
		code, times int
		says        string
	}{
		{driver.OutOfMemory, 1, "no graph came"},
		{driver.CaptureInvalidated, 1, "cannot be launched"},
		{driver.Unknown, 2, "has not ended"},
	} {
		b := newBench(t)
		l := b.leases(1)[0]
		for k := range c.times {
			b.faults.FailMethod(drivertest.StreamEndCapture, uint64(k+1), c.code)
		}
		err := captureNothing(l)
		if !errors.Is(err, core.ErrDriver) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("code %d: %v", c.code, err)
		}
		b.faults.Clear()
		must(t, l.Release())
	}
}
