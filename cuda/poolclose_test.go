package cuda_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// closed fails the test unless err says that something is closed.
func closed(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, core.ErrClosed) {
		t.Errorf("%s: got %v, want %v", what, err, core.ErrClosed)
	}
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// waiters start n goroutines that wait for a stream, and return what they are told.
func (b *bench) waiters(n int) <-chan error {
	b.Helper()
	told := make(chan error, n)
	before := b.Streams.Stats().Waiting
	for range n {
		go func() {
			l, err := b.Streams.Acquire(ctx, "waiter")
			if err == nil {
				err = errors.Join(errors.New("a lease was granted"), l.Release())
			}
			told <- err
		}()
	}
	for b.Streams.Stats().Waiting < before+n {
		time.Sleep(time.Millisecond)
	}
	return told
}

func TestAnEndedContextIsEnoughToCloseAnIdlePool(t *testing.T) {
	for round := range 200 {
		faults := drivertest.NewFaults(&drivertest.Null{})
		p, err := cuda.NewStreamPool(faults, cuda.StreamPoolConfig{})
		must(t, err)
		leases := make([]*cuda.Lease, round%4)
		for i := range leases {
			leases[i], err = p.Acquire(ctx, "test")
			must(t, err)
		}
		for _, l := range leases {
			must(t, l.Release())
		}
		must(t, p.Close(ended()))
		equal(t, "streams destroyed", faults.Calls(drivertest.StreamDestroy), uint64(len(leases)))
	}
}

// A stream that is still at work is not waited for, and is destroyed once it
// has done it.
func TestAnEndedContextDoesNotWaitForAStreamsWork(t *testing.T) {
	b := newBench(t, capacity(2))
	l, err := b.Streams.Acquire(ctx, "test")
	must(t, err)
	block := b.alloc(l, 256)
	release := b.hold(l)
	b.launch(l, writes(block))
	must(t, l.Release())
	if err := b.Streams.Close(ended()); err == nil {
		t.Error("closed while a stream was at work")
	}
	equal(t, "streams destroyed", b.faults.Calls(drivertest.StreamDestroy), 0)
	b.free(block) // while the stream is there: later its free would need another
	release()
	b.drain()
	must(t, b.Streams.Close(ctx))
	equal(t, "streams destroyed", b.faults.Calls(drivertest.StreamDestroy), 1)
}

func TestCloseTellsThoseWhoWaitForAStream(t *testing.T) {
	b := newBench(t, capacity(2))
	held := []*cuda.Lease{b.Lease(t, "first"), b.Lease(t, "second")}
	told := b.waiters(8)
	if err := b.Streams.Close(ended()); err == nil {
		t.Error("closed while streams are leased")
	}
	for range 8 {
		closed(t, "who waited", <-told)
	}
	_, err := b.Streams.TryAcquire(ctx, "late")
	closed(t, "TryAcquire", err)
	_, err = b.Streams.Acquire(ctx, "late")
	closed(t, "Acquire", err)
	_, err = b.Streams.Acquire(ended(), "late")
	closed(t, "Acquire with an ended context", err)
	st := b.Streams.Stats()
	equal(t, "leased", st.Leased, 2)
	equal(t, "waiting", st.Waiting, 0)
	equal(t, "streams made", b.faults.Calls(drivertest.StreamCreate), 2)
	for _, l := range held {
		block := b.alloc(l, 256) // what is leased still works
		b.launch(l, writes(block))
		b.free(block)
	}
}

// Who never gives a lease back costs its stream, and no goroutine.
func TestALeaseThatIsNeverGivenBackKeepsNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	faults := drivertest.NewFaults(&drivertest.Null{})
	p, err := cuda.NewStreamPool(faults, cuda.StreamPoolConfig{})
	must(t, err)
	forgotten, err := p.Acquire(ctx, "forgotten")
	must(t, err)
	idle, err := p.Acquire(ctx, "idle")
	must(t, err)
	must(t, idle.Release())
	short, cancel := within(5)
	defer cancel()
	if err := p.Close(short); err == nil {
		t.Error("closed while a stream is leased")
	}
	expect.Success(t, goleak.Find(before))
	must(t, forgotten.Release()) // late, and nobody closes again
	for faults.Calls(drivertest.StreamDestroy) < 2 {
		time.Sleep(time.Millisecond)
	}
}

// A pool that is gone names no stream, the default one included.
func TestAClosedPoolNamesNoStream(t *testing.T) {
	b := newBench(t)
	must(t, b.Async.Close(ctx))
	must(t, b.Streams.Close(ctx))
	equal(t, "calls", b.calls(func() {
		closed(t, "Synchronize", b.Streams.Synchronize(ctx, core.DefaultStream))
		_, err := b.Streams.Handle(core.DefaultStream)
		closed(t, "Handle", err)
		_, err = b.Runtime.PrepareUse(ctx, core.UseRequest{})
		closed(t, "PrepareUse", err)
		must(t, b.Streams.Close(ctx))
	}), "")
}

// Close comes at any moment while streams are taken, waited for and given back:
// each call ends, no lease is granted once Close has returned, and every stream
// that was made is destroyed.
func TestAClosingPoolHammer(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		faults := drivertest.NewFaults(&drivertest.Null{})
		p, err := cuda.NewStreamPool(faults, cuda.StreamPoolConfig{Max: 1 + random.IntN(3)})
		must(t, err)
		var group sync.WaitGroup
		var refused, returned atomic.Bool
		for range 2 + random.IntN(8) {
			try, turns := random.IntN(2) == 0, random.IntN(50)
			group.Go(func() {
				for turn := 0; ; turn++ {
					after := returned.Load()
					take := p.Acquire
					if try {
						take = p.TryAcquire
					}
					l, err := take(ctx, "hammer")
					switch {
					case err == nil && after:
						t.Errorf("seed %d: a lease was granted after Close", seed)
					case errors.Is(err, core.ErrClosed):
						refused.Store(true)
						return
					case errors.Is(err, cuda.ErrNoStream):
						time.Sleep(10 * time.Microsecond)
						continue
					case err != nil:
						t.Errorf("seed %d: %v", seed, err)
						return
					}
					if turn == turns {
						time.Sleep(100 * time.Microsecond)
					}
					if err := l.Release(); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				}
			})
		}
		kept, err := p.Acquire(ctx, "kept") // over the others' end, half of the time
		must(t, err)
		time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
		if random.IntN(2) == 0 {
			_ = p.Close(ended())
			returned.Store(true)
			group.Wait()
		}
		must(t, kept.Release())
		must(t, p.Close(ctx))
		returned.Store(true)
		group.Wait()
		if !refused.Load() {
			t.Errorf("seed %d: nobody was told of the end", seed)
		}
		equal(t, "streams not destroyed", faults.Calls(drivertest.StreamCreate)-faults.Calls(drivertest.StreamDestroy), 0)
		st := p.Stats()
		equal(t, "leased, waiting and idle", st.Leased+st.Waiting+st.Idle, 0)
	}
}

// Whoever has every stream may wait for somebody who waits for one, so he is told as soon as there
// will be none.
func TestWhoWaitsForAStreamIsToldThatNoneIsLeasedAnyMore(t *testing.T) {
	b := newBench(t, capacity(1))
	held := b.Lease(t, "held")
	told := b.waiters(3)
	b.Streams.BeginClose()
	for range 3 {
		closed(t, "a waiter", <-told)
	}
	equal(t, "leased", b.Streams.Stats().Leased, 1)
	b.free(b.alloc(held, 256)) // the lease is as good as before
}

// A stream that the driver would not synchronise with is not destroyed: frees go on naming it.
func TestAStreamThatCannotBeSynchronisedStaysForItsFrees(t *testing.T) {
	b := newBench(t, capacity(2))
	l := b.leases(2)
	block := b.alloc(l[0], 256)
	must(t, l[0].Release())
	b.faults.FailEvery(drivertest.StreamSynchronize, driver.Unknown)
	short, cancel := within(1)
	defer cancel()
	if err := b.Streams.Close(short); err == nil {
		t.Error("closed while a lease is held")
	}
	for b.faults.Failed(drivertest.StreamSynchronize) == 0 || b.Streams.Stats().Total > 1 {
		time.Sleep(time.Millisecond)
	}
	b.free(block)
	b.drain()
	b.faults.Clear()
	must(t, l[1].Release())
	must(t, b.Streams.Close(ctx))
	equal(t, "streams destroyed", b.faults.Calls(drivertest.StreamDestroy), 2)
}
