package cuda_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// The reaper is in a call that does not return: each Close ends with its ctx,
// and once the driver answers, the next one ends the resource.
func TestCloseIsBoundedWhileTheDriverDoesNotAnswerTheReaper(t *testing.T) {
	b, slow := newSlowBench(t, ticking)
	s := b.leases(1)[0]
	arrived, release := slow.stall(t, drivertest.PoolStats, false)
	b.free(b.alloc(s, 256))
	<-arrived
	short, cancel := within(5)
	defer cancel()
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- b.Async.Close(short) }()
	}
	for range 2 {
		expect.Error(t, <-ended, context.DeadlineExceeded, "Close")
	}
	equal(t, "pools destroyed", b.faults.Calls(drivertest.PoolDestroy), 0)
	release()
	must(t, b.Async.Close(ctx))
	equal(t, "pools destroyed", b.faults.Calls(drivertest.PoolDestroy), 1)
}

// A pool that somebody is asking about is not destroyed meanwhile.
func TestCloseWaitsForWhoNamesThePoolWhileItsContextLasts(t *testing.T) {
	b, slow := newSlowBench(t)
	arrived, release := slow.stall(t, drivertest.PoolStats, false)
	asked := make(chan error, 1)
	go func() {
		_, err := b.Async.PoolStats()
		asked <- err
	}()
	<-arrived
	short, cancel := within(5)
	defer cancel()
	expect.Error(t, b.Async.Close(short), context.DeadlineExceeded, "Close")
	equal(t, "pools destroyed", b.faults.Calls(drivertest.PoolDestroy), 0)
	release()
	must(t, <-asked)
	must(t, b.Async.Close(ctx))
}

func TestAClosedResourceNamesNoPool(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)[0]
	must(t, b.Async.Close(ctx))
	equal(t, "calls", b.calls(func() {
		_, allocated := b.Async.Allocate(ctx, core.Request{Bytes: 256, Stream: s.ID()})
		_, unpooled := b.Async.Allocate(ctx, isolated(s, 256))
		_, asked := b.Async.PoolStats()
		for what, err := range map[string]error{"allocate": allocated, "isolate": unpooled, "trim": b.Async.TrimPool(0), "ask": asked} {
			expect.Error(t, err, core.ErrClosed, what)
		}
		must(t, b.Async.ReapPending(ctx))
		must(t, b.Async.Close(ctx))
	}), "")
}

// Half of the closes with a context that has ended once blamed another call that
// there was not.
func TestAnEndedContextIsEnoughToCloseAnIdleResource(t *testing.T) {
	for range 50 {
		b := newBench(t, ticking)
		b.free(b.alloc(b.leases(1)[0], 256))
		b.drain()
		must(t, b.Async.Close(ended()))
		equal(t, "pools destroyed", b.faults.Calls(drivertest.PoolDestroy), 1)
	}
}

// With no time to wait for the device, the reaper is stopped all the same, and
// the pool destroyed.
func TestAnEndedContextStopsTheReaperOfABusyDevice(t *testing.T) {
	for range 12 {
		b := newBench(t, ticking)
		l := b.leases(1)[0]
		release := b.hold(l)
		b.free(b.alloc(l, 256))
		if err := b.Async.Close(ended()); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "another call") {
			t.Errorf("Close: %v", err)
		}
		equal(t, "pools destroyed", b.faults.Calls(drivertest.PoolDestroy), 1)
		equal(t, "calls", b.calls(func() { time.Sleep(10 * time.Millisecond) }), "")
		release()
		b.drain()
	}
}
