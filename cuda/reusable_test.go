package cuda_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// The clock of these tests stands still while anything runs, so that the times
// that are measured are exact.
func withStoppedClock(t *testing.T, test func(*bench)) {
	t.Helper()
	defer monotime.SystemOnly()()
	synctest.Test(t, func(t *testing.T) { test(newBench(t)) })
}

// reap looks at the queued frees when the device has done all that it can:
// once to mark them, once to see the mark.
func (b *bench) reap() {
	b.Helper()
	for range 2 {
		synctest.Wait()
		must(b, b.Runtime.ReapPending(ctx))
	}
}

// took fails unless exactly these times from the request of a free to its
// release were measured so far.
func (b *bench) took(times ...time.Duration) {
	b.Helper()
	var want core.Durations
	for _, d := range times {
		want.Note(d)
	}
	equal(b, "times from free to reusable", b.Runtime.Stats().FreeToReusable, want)
}

const ms = time.Millisecond

func TestTheTimeFromAFreeToReusableIsMeasured(t *testing.T) {
	withStoppedClock(t, func(b *bench) {
		l := b.leases(1)[0]
		blocks := b.allocs(l, 3, 256)
		release := b.hold(l)
		b.free(blocks[0])
		time.Sleep(10 * ms)
		b.free(blocks[1])
		b.reap()
		b.took()
		time.Sleep(30 * ms)
		release()
		b.reap()
		b.took(40*ms, 30*ms)
		b.free(blocks[2])
		time.Sleep(7 * ms) // the device is done, and nobody looks
		b.reap()
		b.took(40*ms, 30*ms, 7*ms)
	})
}

func TestAFreeThatALaunchHoldsBackIsMeasuredFromItsRequest(t *testing.T) {
	withStoppedClock(t, func(b *bench) {
		s := b.leases(2)
		finished, aborted := b.alloc(s[0], 256), b.alloc(s[0], 256)
		kept, dropped := b.prepare(s[1], writes(finished)), b.prepare(s[1], writes(aborted))
		b.free(finished, aborted)
		time.Sleep(20 * ms)
		must(b, b.Runtime.AbortUse(ctx, dropped))
		b.reap()
		b.took(20 * ms)
		time.Sleep(20 * ms)
		b.enqueue(s[1], writes(finished))
		must(b, b.Runtime.FinishUse(ctx, kept))
		b.reap()
		b.took(20*ms, 40*ms)
	})
}

func TestAFreeThatIsTriedAgainIsMeasuredFromItsRequest(t *testing.T) {
	withStoppedClock(t, func(b *bench) {
		l := b.leases(1)[0]
		block := b.alloc(l, 256)
		ticket := b.prepare(l, writes(block))
		b.free(block)
		time.Sleep(5 * ms)
		b.faults.FailMethod(drivertest.MemFreeAsync, 1, driver.InvalidHandle)
		must(b, b.Runtime.AbortUse(ctx, ticket)) // its free fails and is kept for the reaper
		b.took()
		time.Sleep(15 * ms)
		b.reap()
		b.took(20 * ms)
	})
}

// The caller who was told that a free failed has the block back: what is
// measured is the free that it asks for later.
func TestAFreeThatFailedIsNotMeasured(t *testing.T) {
	withStoppedClock(t, func(b *bench) {
		block := b.alloc(b.leases(1)[0], 256)
		b.faults.FailMethod(drivertest.MemFreeAsync, 1, driver.InvalidHandle)
		if _, err := b.Runtime.Deallocate(ctx, block.ID); err == nil {
			b.Fatal("the failure was swallowed")
		}
		time.Sleep(100 * ms)
		b.free(block)
		time.Sleep(3 * ms)
		b.reap()
		b.took(3 * ms)
	})
}

func TestFreesOfAGivenUpStreamAreMeasured(t *testing.T) {
	withStoppedClock(t, func(b *bench) {
		l, handle := b.adopt()
		queued, later := b.alloc(l, 256), b.alloc(l, 256)
		release := b.hold(l)
		b.launch(l, writes(queued, later))
		b.free(queued)
		time.Sleep(10 * ms)
		b.giveUp(l, handle)
		b.free(later) // on another stream, behind the last event of this one
		time.Sleep(10 * ms)
		b.reap()
		b.took()
		release()
		b.reap()
		b.took(20*ms, 10*ms)
		b.reap()
		b.took(20*ms, 10*ms) // though the stream is forgotten
	})
}

// Where nothing else happens the ticker looks twice: once to record an event
// behind the frees, once to see it passed.
func TestTheFigureIsLateByTwoReapIntervalsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 10 * ms
		b := newBench(t, func(c *teststack.Config) { c.Async.ReapInterval = interval })
		l := b.leases(1)[0]
		for phase := range 10 {
			block := b.alloc(l, 256)
			time.Sleep(time.Duration(phase) * ms)
			before := b.Runtime.Stats().FreeToReusable
			b.free(block)
			time.Sleep(2 * interval)
			synctest.Wait()
			after := b.Runtime.Stats().FreeToReusable
			equal(t, "frees measured", after.Count(), before.Count()+1)
			if late := time.Duration(after.Nanoseconds - before.Nanoseconds); late > 2*interval {
				t.Errorf("a free was known after %v", late)
			}
		}
	})
}

func TestADirectFreeIsMeasuredWhileItWaits(t *testing.T) {
	withStoppedClock(t, func(b *bench) {
		l := b.leases(1)[0]
		direct := cuda.NewDirectResource(b.Driver)
		block, err := direct.Allocate(ctx, core.Request{Bytes: 256})
		must(b, err)
		release := b.hold(l)
		must(b, b.Driver.MemsetAsync(block.ID.Ptr, 1, 256, l.Handle()))
		go func() {
			time.Sleep(25 * ms)
			release()
		}()
		_, err = direct.Deallocate(ctx, block.ID)
		must(b, err)
		var want core.Durations
		want.Note(25 * ms)
		equal(b, "times from free to reusable", direct.Stats().FreeToReusable, want)
	})
}

// Each free is measured exactly once, whoever reaps it and whatever held it
// back: by a launch, a fault, or its stream's being given up.
func TestEveryFreeIsMeasuredOnceHammer(t *testing.T) {
	const workers, rounds = 8, 200
	b := newBench(t, ticking)
	shared := b.leases(2)
	var group sync.WaitGroup
	for g := range workers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(11, uint64(g)))
			for range rounds {
				if err := b.liveAndFree(shared[rng.IntN(2)], rng); err != nil {
					t.Errorf("seed 11, worker %d: %v", g, err)
					return
				}
				_ = b.Runtime.Stats()
			}
		})
	}
	for range 50 {
		l, handle := b.adopt()
		block := b.alloc(l, 256)
		b.launch(l, writes(block))
		b.giveUp(l, handle)
		b.free(block)
	}
	group.Wait()
	b.drain()
	st := b.Runtime.Stats()
	equal(t, "frees measured", st.FreeToReusable.Count(), st.Deallocations)
	equal(t, "frees", st.Deallocations, workers*rounds+50)
}

// liveAndFree allocates a block and frees it, at times under a launch or
// with a reap on its heels.
func (b *bench) liveAndFree(on *cuda.Lease, rng *rand.Rand) error {
	block, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: on.ID()})
	if err != nil {
		return err
	}
	var ticket core.Ticket
	held := rng.IntN(2) == 0
	if held {
		if ticket, err = b.Runtime.PrepareUse(ctx, core.UseRequest{Stream: on.ID(), Uses: declared(writes(block))}); err != nil {
			return err
		}
	}
	if _, err = b.Runtime.Deallocate(ctx, block.ID); err != nil {
		return err
	}
	if held && rng.IntN(2) == 0 {
		return b.Runtime.FinishUse(ctx, ticket)
	}
	if held {
		return b.Runtime.AbortUse(ctx, ticket)
	}
	return b.Runtime.ReapPending(ctx)
}
