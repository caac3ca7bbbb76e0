package cuda_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/internal/teststack"
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
		"a guard's kernel": func() error { return ops.Fill(ctx, l.ID(), []core.Region{{Ptr: to.Ptr(), Bytes: 8}}) },
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
	if err := cuda.CopyFromPeer(ctx, to, l.ID(), from, there.ID()); !errors.Is(err, core.ErrDriver) {
		t.Errorf("the copy: %v", err)
	}
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
