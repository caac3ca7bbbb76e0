package cuda_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// slowDriver lets a test decide how long some calls take. hook is called
// before and after each of them.
type slowDriver struct {
	driver.Driver
	hook atomic.Pointer[func(m drivertest.Method, after bool)]
}

func (d *slowDriver) Unwrap() driver.Driver { return d.Driver }

func (d *slowDriver) at(m drivertest.Method, after bool) {
	if hook := d.hook.Load(); hook != nil {
		(*hook)(m, after)
	}
}

func (d *slowDriver) MemAllocAsync(bytes uint64, pool driver.Pool, s driver.Stream) (uint64, error) {
	d.at(drivertest.MemAllocAsync, false)
	defer d.at(drivertest.MemAllocAsync, true)
	return d.Driver.MemAllocAsync(bytes, pool, s)
}

func (d *slowDriver) EventRecord(e driver.Event, s driver.Stream) error {
	defer d.at(drivertest.EventRecord, true)
	return d.Driver.EventRecord(e, s)
}

func (d *slowDriver) PoolStats(p driver.Pool) (driver.PoolStats, error) {
	d.at(drivertest.PoolStats, false)
	defer d.at(drivertest.PoolStats, true)
	return d.Driver.PoolStats(p)
}

func (d *slowDriver) StreamSynchronize(s driver.Stream) error {
	d.at(drivertest.StreamSynchronize, false)
	defer d.at(drivertest.StreamSynchronize, true)
	return d.Driver.StreamSynchronize(s)
}

func (d *slowDriver) StreamCreate() (driver.Stream, error) {
	d.at(drivertest.StreamCreate, false)
	return d.Driver.StreamCreate()
}

func (d *slowDriver) EventDestroy(e driver.Event) error {
	d.at(drivertest.EventDestroy, false)
	return d.Driver.EventDestroy(e)
}

// newSlowBench is a bench whose driver calls can be slow.
func newSlowBench(t *testing.T, change ...func(*teststack.Config)) (*bench, *slowDriver) {
	t.Helper()
	slow := new(slowDriver)
	b := newBench(t, append(change, func(c *teststack.Config) {
		count := c.Wrap
		c.Wrap = func(d driver.Driver) driver.Driver {
			slow.Driver = d
			return count(slow)
		}
	})...)
	return b, slow
}

// stall makes the next call of m last until release is called; arrived is
// closed when it is being made.
func (d *slowDriver) stall(t *testing.T, m drivertest.Method, after bool) (arrived <-chan struct{}, release func()) {
	t.Helper()
	there, open := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	hook := func(called drivertest.Method, isAfter bool) {
		if called == m && isAfter == after && once.CompareAndSwap(false, true) {
			close(there)
			<-open
		}
	}
	d.hook.Store(&hook)
	release = sync.OnceFunc(func() { close(open) })
	t.Cleanup(release)
	return there, release
}

// during runs call in the background, and then what must not wait for it once
// the stalled driver call has been reached. It returns when both are done.
func (b *bench) during(arrived <-chan struct{}, release func(), call func() error, then func() error) {
	b.Helper()
	called, done := make(chan error, 1), make(chan error, 1)
	go func() { called <- call() }()
	select {
	case <-arrived:
	case err := <-called:
		b.Fatalf("the call ended without being stalled: %v", err)
	}
	go func() { done <- then() }()
	select {
	case err := <-done:
		must(b, err)
	case <-time.After(patience):
		b.Error("a launch waits for a driver call of another stream")
		release()
		must(b, <-done)
	}
	release()
	must(b, <-called)
}

// try launches the kernel really, for goroutines that may not end the test.
func (b *bench) try(on *cuda.Lease, uses ...[]use) error {
	t, err := b.Runtime.PrepareUse(ctx, core.UseRequest{Stream: on.ID(), Uses: declared(join(uses))})
	if err != nil {
		return err
	}
	err = b.kernel.Enqueue(on.Handle(), grid, mixArgs(1, join(uses))...)
	return errors.Join(err, b.Runtime.FinishUse(ctx, t))
}

func (b *bench) tryAlloc(on *cuda.Lease, into *core.Block) (err error) {
	*into, err = b.Runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: on.ID()})
	return err
}

// Whether the driver has enqueued the allocation when the shared event is
// recorded cannot be known, so the fresh block must not be ready behind it.
func TestALaunchDoesNotWaitForAnAllocationOfAnotherStream(t *testing.T) {
	for name, after := range map[string]bool{"not enqueued": false, "enqueued": true} {
		t.Run(name, func(t *testing.T) {
			b, slow := newSlowBench(t)
			s := b.leases(3)
			old := b.allocs(s[0], 2, 256)
			var fresh core.Block
			arrived, release := slow.stall(t, drivertest.MemAllocAsync, after)
			b.during(arrived, release, func() error { return b.tryAlloc(s[0], &fresh) },
				func() error { return b.try(s[1], writes(old[0])) })
			equal(t, "waits for the block that was being allocated", b.launch(s[1], writes(fresh)).waits, 1)
			next := b.alloc(s[0], 256)
			equal(t, "waits of all of them", b.launch(s[2], writes(old[0], old[1], fresh, next)).waits, 2)
			b.free(append(old, fresh, next)...)
		})
	}
}

// The other stream's record may be under way when the allocation is done.
func TestAnAllocationIsNotReadyBehindARecordUnderWay(t *testing.T) {
	b, slow := newSlowBench(t)
	s := b.leases(2)
	old := b.alloc(s[0], 256)
	arrived, release := slow.stall(t, drivertest.EventRecord, true)
	launched, allocated := make(chan error, 1), make(chan error, 1)
	go func() { launched <- b.try(s[1], writes(old)) }()
	<-arrived
	var fresh core.Block
	go func() { allocated <- b.tryAlloc(s[0], &fresh) }()
	time.Sleep(5 * time.Millisecond) // it waits for the record
	release()
	must(t, errors.Join(<-launched, <-allocated))
	equal(t, "waits for the fresh block", b.launch(s[1], writes(fresh)).waits, 1)
	b.free(old, fresh)
}

// The stream that needed the event is ordered after its number, and nobody is
// left who refers to it.
func TestAnAllocationSharesNoEventThatWasRecordedForOthers(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	old := b.alloc(s[0], 256)
	b.launch(s[1], writes(old))
	b.sync(s[1])
	b.free(old)
	fresh := b.alloc(s[0], 256)
	equal(t, "waits for the fresh block", b.launch(s[1], writes(fresh)).waits, 1)
	b.free(fresh)
}

// The allocation that was overtaken fails: what it had in reserve comes back.
func TestAnAllocationThatIsOvertakenAndFailsLeavesNothing(t *testing.T) {
	b, slow := newSlowBench(t)
	s := b.leases(2)
	old := b.alloc(s[0], 256)
	fail := func() error {
		b.faults.FailEvery(drivertest.MemAllocAsync, driver.OutOfMemory)
		defer b.faults.Clear()
		_, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: s[0].ID()})
		if !errors.Is(err, core.ErrOutOfMemory) {
			return errors.Join(errors.New("the allocation did not fail"), err)
		}
		return nil
	}
	must(t, fail())
	events := b.Runtime.Stats().Events
	must(t, fail())
	equal(t, "events after another failure", b.Runtime.Stats().Events, events)
	var fresh core.Block
	arrived, release := slow.stall(t, drivertest.MemAllocAsync, true)
	b.during(arrived, release, func() error { return b.tryAlloc(s[0], &fresh) }, func() error { return b.try(s[1], writes(old)) })
	b.free(old, fresh)
}

func TestALaunchDoesNotWaitForAStreamThatIsGivenUp(t *testing.T) {
	b, slow := newSlowBench(t)
	s := b.leases(1)
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	arrived, release := slow.stall(t, drivertest.StreamSynchronize, false)
	b.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	b.during(arrived, release, l.Release, func() error { return b.try(s[0], writes(block)) })
	must(t, b.Sim.StreamDestroy(handle))
	b.free(block)
}

// The event behind the block could not be recorded while its stream was there,
// and the stream must not be named afterwards.
func TestReadinessOfAStreamThatWasGivenUpIsNotRecordedAnyMore(t *testing.T) {
	for name, deviceOrder := range map[string]bool{"host order": false, "device order": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(c *teststack.Config) { c.DeviceOrder = deviceOrder })
			s := b.leases(1)
			l, handle := b.adopt()
			block := b.alloc(l, 256)
			b.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
			b.giveUp(l, handle)
			b.launch(s[0], writes(block))
			b.free(block)
		})
	}
}

func TestALaunchDoesNotWaitForAStreamThatIsDestroyed(t *testing.T) {
	b, slow := newSlowBench(t)
	s := b.leases(2)
	block, other := b.alloc(s[0], 256), b.alloc(s[0], 256)
	must(t, s[0].Release())
	arrived, release := slow.stall(t, drivertest.StreamSynchronize, false)
	closing := func() error {
		bounded, cancel := within(1)
		defer cancel()
		err := b.Streams.Close(bounded)
		<-arrived // what it left behind goes on
		if err == nil {
			return errors.New("closed while a lease is held")
		}
		return nil
	}
	b.during(arrived, release, closing, func() error {
		err := b.try(s[1], writes(block))
		for _, done := range []core.Block{block, other} {
			_, freeErr := b.Runtime.Deallocate(ctx, done.ID)
			err = errors.Join(err, freeErr)
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return errors.Join(err, b.Runtime.Drain(bounded))
	})
}

// The event behind the block could not be recorded while its stream was there,
// and the stream must not be named afterwards.
func TestReadinessOfAStreamThatWasDestroyedIsNotRecordedAnyMore(t *testing.T) {
	b := newBench(t, dirty, func(c *teststack.Config) { c.DeviceOrder = true })
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	must(t, s[0].Release())
	b.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	bounded, cancel := within(1)
	defer cancel()
	if err := b.Streams.Close(bounded); err == nil {
		t.Error("closed while a lease is held")
	}
	for b.faults.Calls(drivertest.StreamDestroy) == 0 {
		time.Sleep(time.Millisecond)
	}
	b.launch(s[1], writes(block))
}

func TestAFinishDoesNotWaitForTheStreamOfABlockThatItFrees(t *testing.T) {
	b, slow := newSlowBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	ticket := b.prepare(s[1], writes(block))
	b.enqueue(s[1], writes(block))
	b.free(block)
	var fresh core.Block
	arrived, release := slow.stall(t, drivertest.MemAllocAsync, false)
	b.during(arrived, release, func() error { return b.tryAlloc(s[0], &fresh) },
		func() error { return b.Runtime.FinishUse(ctx, ticket) })
	equal(t, "state", b.Runtime.State(block.ID), core.Retired)
	equal(t, "failures", b.Runtime.Stats().Failures, 0)
	b.drain()
	equal(t, "state", b.Runtime.State(block.ID), core.Freed)
	b.free(fresh)
}

// The events of streams that are gone are destroyed by whoever drops them
// last, and that holds up nobody who looks at the block.
func TestALaunchDoesNotWaitForTheEventsThatAnotherDestroys(t *testing.T) {
	b, slow := newSlowBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.launch(s[0], writes(block))
	for range 3 {
		l, handle := b.adopt()
		b.launch(l, reads(block))
		b.giveUp(l, handle)
	}
	equal(t, "waits for the readers", b.launch(s[0], writes(block)).waits, 3)
	b.sync(s[0])
	must(t, b.Runtime.ReapPending(ctx))
	arrived, release := slow.stall(t, drivertest.EventDestroy, false)
	b.during(arrived, release, func() error { return b.try(s[0], reads(block)) },
		func() error { return b.try(s[1], reads(block)) })
	b.free(block)
}

func TestALeaseDoesNotWaitForTheBackstop(t *testing.T) {
	b, slow := newSlowBench(t)
	idle := b.Lease(t, "idle")
	must(t, idle.Release())
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	b.launch(l, writes(block))
	b.giveUp(l, handle)
	arrived, release := slow.stall(t, drivertest.StreamCreate, false)
	b.during(arrived, release, func() error { _, err := b.Runtime.Deallocate(ctx, block.ID); return err },
		func() error {
			again, err := b.Streams.Acquire(ctx, "test")
			if err != nil {
				return err
			}
			return again.Release()
		})
}

// TestHammerOvertakenAllocations allocates on streams whose allocations take
// their time, while other streams use the blocks that came before: the oracle
// judges whether each was ready.
func TestHammerOvertakenAllocations(t *testing.T) {
	const streams, rounds, run = 4, 60, 4
	b, slow := newSlowBench(t, ticking)
	hook := func(m drivertest.Method, _ bool) {
		if m == drivertest.MemAllocAsync && rand.IntN(2) == 0 {
			time.Sleep(time.Duration(rand.IntN(40)) * time.Microsecond)
		}
	}
	slow.hook.Store(&hook)
	homes, away := b.leases(streams), b.leases(streams)
	var group sync.WaitGroup
	for g := range streams {
		fresh := make(chan core.Block, run)
		group.Go(func() {
			defer close(fresh)
			for range rounds * run {
				var block core.Block
				if err := b.tryAlloc(homes[g], &block); err != nil {
					t.Error(err)
					return
				}
				fresh <- block
			}
		})
		group.Go(func() { b.useAndFree(away[g], away[(g+1)%streams], fresh) })
	}
	group.Wait()
	slow.hook.Store(nil)
	b.drain()
	equal(t, "outstanding", b.Runtime.Stats().Outstanding(), core.Amount{})
}

// useAndFree writes each block on one stream, and half of them on another.
func (b *bench) useAndFree(first, second *cuda.Lease, fresh <-chan core.Block) {
	n := 0
	for block := range fresh {
		err := b.try(first, writes(block))
		if n++; n%2 == 0 {
			err = errors.Join(err, b.try(second, readWrites(block)))
		}
		_, freeErr := b.Runtime.Deallocate(ctx, block.ID)
		if err = errors.Join(err, freeErr); err != nil {
			b.Error(err)
		}
	}
}
