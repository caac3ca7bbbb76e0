package debugguard_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// ticking has the guard look every few milliseconds, and quarantine end as soon
// as the test's clock is moved.
func ticking(c *debugguard.Config) {
	c.QuarantineAge, c.Advanced.UpkeepInterval, c.Advanced.Hunt.Canaries = 10*time.Second, 2*time.Millisecond, -1
}

// eventually waits for what nobody does but the guard itself.
func (b *bench) eventually(what string, holds func() bool) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("not %s: %+v", what, b.guard.GuardStats())
		}
	}
}

func (b *bench) found() bool {
	b.sink.mu.Lock()
	defer b.sink.mu.Unlock()
	return len(b.sink.all) > 0
}

// What was freed leaves quarantine at its age and not before, and its verdict is
// read, though nobody calls the guard.
func TestQuarantineAgesWithoutACall(t *testing.T) {
	b := newBench(t, debugguard.Hunt, ticking)
	defer func() { _ = b.guard.Close(ctx) }()
	old, young := b.alloc(64), b.alloc(64)
	b.free(old)
	b.mem.poke(old.ID.Ptr+64, 1)
	b.clock.advance(5 * time.Second)
	b.free(young)
	b.clock.advance(5 * time.Second)
	time.Sleep(50 * time.Millisecond)
	if b.found() || b.guard.GuardStats().Evicted != 0 {
		t.Fatalf("before its age: %+v", b.guard.GuardStats())
	}
	b.clock.advance(time.Nanosecond)
	b.eventually("found", b.found)
	b.want(names.FindingOutOfBoundsWrite)
	b.eventually("settled", func() bool { return b.guard.GuardStats().Checks == 0 })
	if g := b.guard.GuardStats(); g.Quarantine.Blocks != 1 || g.Evicted != 1 {
		t.Errorf("the young block went with the old: %+v", g)
	}
	b.clock.advance(5 * time.Second)
	b.eventually("empty", func() bool { return b.guard.GuardStats().Quarantine.Blocks == 0 })
	b.empty()
}

// There is no timer before anything is freed, nor after everything has gone.
func TestTheUpkeepRunsOnlyWhileThereIsSome(t *testing.T) {
	b := newBench(t, debugguard.Hunt, ticking)
	for range 3 {
		block := b.alloc(64)
		if b.guard.Ticking() {
			t.Error("it runs with nothing freed")
		}
		b.free(block)
		if !b.guard.Ticking() {
			t.Error("it does not run while a block is in quarantine")
		}
		b.clock.advance(time.Minute)
		b.eventually("over", func() bool { return !b.guard.Ticking() })
		b.empty()
	}
}

// A comparison that was made at the free is collected when the device has done it,
// however late that is.
func TestAVerdictIsCollectedWithoutACall(t *testing.T) {
	for name, change := range map[string]func(*debugguard.Config){
		"too large to be kept": func(c *debugguard.Config) { c.QuarantineBytes, c.Advanced.Hunt.QuarantineBytes = 1, 1 },
		"kept without limit":   func(c *debugguard.Config) { c.QuarantineAge, c.Advanced.Hunt.Bisect = -1, true },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, debugguard.Hunt, ticking, change)
			defer func() { _ = b.guard.Close(ctx) }()
			block := b.alloc(64)
			b.mem.poke(block.ID.Ptr+64, 1)
			b.mem.hold()
			b.free(block)
			time.Sleep(20 * time.Millisecond)
			if b.found() || b.guard.GuardStats().Checks == 0 {
				t.Fatalf("the device has done nothing yet: %+v", b.guard.GuardStats())
			}
			b.mem.release()
			b.eventually("found", b.found)
			b.want(names.FindingOutOfBoundsWrite)
			b.eventually("settled", func() bool { return b.guard.GuardStats().Checks == 0 })
		})
	}
}

// A block that an open launch keeps from being freed ages from the end of that
// launch.
func TestADeferredFreeAgesFromTheEndOfItsLaunch(t *testing.T) {
	b := newBench(t, debugguard.Hunt, ticking)
	defer func() { _ = b.guard.Close(ctx) }()
	block := b.alloc(64)
	ticket := b.prepare("writes", 1, block)
	b.free(block)
	b.clock.advance(time.Minute)
	b.mem.poke(block.ID.Ptr+64, 1)
	b.finish(ticket)
	if g := b.guard.GuardStats(); g.Quarantine.Blocks != 1 {
		t.Fatalf("it is not in quarantine: %+v", g)
	}
	b.clock.advance(11 * time.Second)
	b.eventually("found", b.found)
	b.want(names.FindingOutOfBoundsWrite)
}

// What fails leaves the block in quarantine, and the next tick tries again; a
// device that is lost is asked once and no more.
func TestTheUpkeepTriesAgainUnlessTheDeviceIsLost(t *testing.T) {
	b := newBench(t, debugguard.Hunt, ticking)
	defer func() { _ = b.guard.Close(ctx) }()
	b.free(b.alloc(64))
	b.fake.FailNext("Deallocate", errDevice, errDevice)
	b.clock.advance(time.Minute)
	b.eventually("empty", func() bool { return b.guard.GuardStats().Quarantine.Blocks == 0 })
	if g := b.guard.GuardStats(); g.Retried != 2 {
		t.Errorf("it was tried again %d times, want 2", g.Retried)
	}

	lost := *errDevice
	lost.Sticky = true
	b.free(b.alloc(64))
	b.fake.FailNext("Deallocate", &lost, &lost)
	b.clock.advance(time.Minute)
	b.eventually("told", func() bool { return b.guard.GuardStats().Retried == 3 })
	time.Sleep(50 * time.Millisecond)
	if g := b.guard.GuardStats(); g.Retried != 3 || g.Quarantine.Blocks != 1 {
		t.Errorf("a lost device was asked again: %+v", g)
	}
}

// A mass of old blocks goes in steps, beside what comes and goes meanwhile.
func TestManyOldBlocksGoBesideNewOnes(t *testing.T) {
	b := newBench(t, debugguard.Hunt, ticking)
	defer func() { _ = b.guard.Close(ctx) }()
	const blocks = 1000 // many steps
	for range blocks {
		b.free(b.alloc(64))
	}
	b.clock.advance(time.Minute)
	b.eventually("empty", func() bool { b.free(b.alloc(64)); return b.guard.GuardStats().Evicted >= blocks })
	b.want()
}

// Close waits for a tick under way as long as its context lets it, and none
// begins after it, whatever comes into quarantine then.
func TestNoUpkeepAfterClose(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var told atomic.Int64
	b := newBench(t, debugguard.Hunt, ticking, func(c *debugguard.Config) {
		c.Findings = findingFunc(func(core.Finding) {
			if told.Add(1) == 1 {
				close(entered)
				<-leave
			}
		})
	})
	block := b.alloc(64)
	b.mem.poke(block.ID.Ptr+64, 1)
	b.free(block)
	b.clock.advance(time.Minute)
	<-entered // a tick reports, and does not return
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := b.guard.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close says %v of a tick that does not end", err)
	}
	close(leave)
	expect.Success(t, b.guard.Close(ctx))
	if err := b.guard.Close(ended); err != nil {
		t.Errorf("there is nothing to wait for: %v", err)
	}
	b.free(b.alloc(64))
	b.clock.advance(time.Minute)
	time.Sleep(50 * time.Millisecond)
	if g := b.guard.GuardStats(); g.Quarantine.Blocks != 1 {
		t.Errorf("somebody was at work after Close: %+v", g)
	}
	b.empty()
}

type findingFunc func(core.Finding)

func (f findingFunc) Report(found core.Finding) { f(found) }

// The tick beside everything that it shares something with; the race detector
// looks on, and no block and no verdict is lost.
func TestHammerTheUpkeep(t *testing.T) {
	b := newBench(t, debugguard.Sample, func(c *debugguard.Config) {
		c.SampleBytes, c.QuarantineBytes, c.Advanced.Tombstones = 1, 64<<10, 64
		c.QuarantineAge, c.Advanced.UpkeepInterval, c.Advanced.Now = time.Millisecond, 200*time.Microsecond, time.Now
	})
	var stop atomic.Bool
	var work, others sync.WaitGroup
	settings := [...]debugguard.Setting{{Mode: debugguard.Hunt}, {Mode: debugguard.Off}, {Mode: debugguard.Sample}, {Mode: debugguard.Hunt, Bisect: true}, {Mode: debugguard.Ledger}, {Mode: debugguard.Hunt, Unmap: true}}
	others.Go(func() {
		for i := 0; !stop.Load(); i++ {
			if err := b.guard.Apply(ctx, settings[i%len(settings)]); err != nil && !errors.Is(err, core.ErrClosed) {
				t.Error(err)
			}
			b.fake.Pass()
			time.Sleep(300 * time.Microsecond)
		}
	})
	others.Go(func() {
		for !stop.Load() {
			expect.Success(t, b.guard.Drain(ctx))
			time.Sleep(time.Millisecond) // what is quiet is the tick's
		}
	})
	for g := range 4 {
		work.Go(func() { churn(b, g, 800) })
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		time.Sleep(50 * time.Millisecond)
		for range 4 {
			others.Go(func() {
				expect.Success(t, b.guard.Close(ctx))
			})
		}
	}()
	work.Wait()
	<-closed
	stop.Store(true)
	others.Wait()
	b.empty()
	b.want()
}
