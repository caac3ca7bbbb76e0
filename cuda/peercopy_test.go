package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// pairSchedules are the clocks of two devices side by side.
var pairSchedules = [][2]sim.Schedule{
	{sim.FreeRunning(), sim.FreeRunning()}, {sim.Seeded(1), sim.Seeded(2)}, {sim.FreeRunning(), sim.Seeded(3)}, {sim.Seeded(4), sim.FreeRunning()},
}

// newPair is a stack on each of two devices.
func newPair(t *testing.T, s [2]sim.Schedule, change ...func(*teststack.Config)) (a, b *bench) {
	t.Helper()
	second := func(c *teststack.Config) { c.Sim.Ordinal = 1 }
	return newBench(t, append(change, withSchedule(s[0]))...), newBench(t, append(change, withSchedule(s[1]), second)...)
}

func underEachPair(t *testing.T, test func(t *testing.T, a, b *bench)) {
	for _, s := range pairSchedules {
		t.Run(fmt.Sprintf("%v and %v", s[0], s[1]), func(t *testing.T) {
			a, b := newPair(t, s)
			test(t, a, b)
		})
	}
}

// numbers allocates values on l and fills them with one number.
func (b *bench) numbers(l *cuda.Lease, n int, value int32) *cuda.Slice[int32] {
	b.Helper()
	s, err := cuda.Alloc[int32](ctx, b.Memory, n, cuda.AllocOptions{Stream: l.ID(), Tag: "test"})
	must(b, err)
	b.Cleanup(func() { _ = s.Free(ctx) })
	b.set(s, l, value)
	return s
}

func (b *bench) set(s *cuda.Slice[int32], l *cuda.Lease, value int32) {
	b.Helper()
	values := make([]int32, s.Len())
	for i := range values {
		values[i] = value
	}
	must(b, cuda.CopyToDevice(ctx, s, l.ID(), values))
}

func (b *bench) wantAll(s *cuda.Slice[int32], l *cuda.Lease, value int32) {
	b.Helper()
	got, err := cuda.Download(ctx, s, l.ID())
	must(b, err)
	for i := range got {
		if got[i] != value {
			b.Fatalf("value %d is %d, want %d", i, got[i], value)
		}
	}
}

// The ends live on, and are written, read and freed on other streams than
// those of the copy, at once.
func TestPeerCopyIsFencedAtBothEnds(t *testing.T) {
	underEachPair(t, func(t *testing.T, a, b *bench) {
		here, there := a.leases(3), b.leases(3)
		src, dst := a.numbers(here[0], 1000, 7), b.numbers(there[0], 1200, 0)
		for round := range int32(5) {
			a.set(src, here[2], round)
			must(t, cuda.CopyFromPeer(ctx, dst, there[1].ID(), src, here[1].ID()))
			a.set(src, here[0], -1) // a write behind the copy's read
			head, err := dst.View(0, 1000)
			must(t, err)
			b.wantAll(head, there[2], round)
			must(t, head.Free(ctx))
		}
		must(t, cuda.CopyFromPeer(ctx, dst, there[1].ID(), src, here[1].ID()))
		must(t, src.Free(ctx))
		must(t, dst.Free(ctx))
	})
}

// Copies that cross, between the same two blocks, wait for launches and never
// for each other. Both are let go at once, when each has come as far as it
// can: if they took the blocks in different orders each would hold one.
func TestPeerCopiesThatCrossDoNotDeadlock(t *testing.T) {
	underEachPair(t, func(t *testing.T, a, b *bench) {
		here, there := a.leases(3), b.leases(3)
		x, y := a.numbers(here[0], 64, 3), b.numbers(there[0], 64, 3)
		bounded, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for range 20 {
			held, err := b.Runtime.PrepareBlockUse(ctx, y.BlockID(), there[0].ID(), core.Write)
			must(t, err)
			var both sync.WaitGroup
			both.Go(func() {
				expect.Success(t, cuda.CopyFromPeer(bounded, x, here[1].ID(), y, there[1].ID()))
			})
			both.Go(func() {
				expect.Success(t, cuda.CopyFromPeer(bounded, y, there[2].ID(), x, here[2].ID()))
			})
			time.Sleep(time.Millisecond)
			must(t, b.Runtime.AbortUse(ctx, held))
			if both.Wait(); t.Failed() {
				return
			}
		}
		a.wantAll(x, here[0], 3)
		b.wantAll(y, there[0], 3)
	})
}

// Two services, one on each device, work while values go back and forth.
func TestTwoRuntimesWorkSideBySide(t *testing.T) {
	for _, s := range pairSchedules {
		t.Run(fmt.Sprintf("%v and %v", s[0], s[1]), func(t *testing.T) {
			a, b := newPair(t, s, ticking)
			var all sync.WaitGroup
			for _, side := range []*bench{a, b} {
				w, err := workload.New(side.Env(), workload.Config{Goroutines: 2, Iterations: 4, Rounds: 1, Rows: 500, Seed: 1})
				must(t, err)
				all.Go(func() {
					result, err := w.Run(ctx)
					if err != nil || result.Wrong > 0 || result.Checked == 0 {
						t.Errorf("device %d: %+v, %v", side.Sim.Ordinal(), result, err)
					}
				})
			}
			here, there := a.leases(2), b.leases(2)
			for i := range int32(20) {
				src, dst := a.numbers(here[0], 300, i), b.numbers(there[0], 300, -1)
				must(t, cuda.CopyFromPeer(ctx, dst, there[1].ID(), src, here[1].ID()))
				must(t, src.Free(ctx))
				b.wantAll(dst, there[0], i)
				must(t, dst.Free(ctx))
			}
			all.Wait()
		})
	}
}

// Layers on one side only: a budget that holds exactly, a guard that finds
// nothing.
func TestPeerCopyUnderLayers(t *testing.T) {
	for _, s := range pairSchedules {
		t.Run(fmt.Sprintf("%v and %v", s[0], s[1]), func(t *testing.T) {
			plain := newBench(t, withSchedule(s[0]))
			layered := newBench(t, withSchedule(s[1]), func(c *teststack.Config) {
				c.Sim.Ordinal = 1
				c.Layers = []core.Layer{
					func(up core.Resource) (core.Resource, error) { return budget.New(up, budget.Config{Limit: 1 << 20}) },
					func(up core.Resource) (core.Resource, error) {
						return debugguard.New(up, debugguard.Config{Mode: debugguard.Hunt})
					},
				}
			})
			here, there := plain.leases(2), layered.leases(2)
			for i := range int32(4) {
				x, y := plain.numbers(here[0], 100, i), layered.numbers(there[0], 100, 0)
				must(t, cuda.CopyFromPeer(ctx, y, there[1].ID(), x, here[1].ID()))
				layered.wantAll(y, there[0], i)
				plain.set(x, here[0], -1)
				must(t, cuda.CopyFromPeer(ctx, x, here[1].ID(), y, there[1].ID()))
				plain.wantAll(x, here[0], i)
				must(t, x.Free(ctx))
				must(t, y.Free(ctx))
			}
			layered.drain()
		})
	}
}

func TestPeerCopyRefuses(t *testing.T) {
	a, b := newPair(t, pairSchedules[0])
	here, there := a.leases(1)[0], b.leases(1)[0]
	x, y, short := a.numbers(here, 8, 1), b.numbers(there, 8, 1), b.numbers(there, 4, 1)
	empty := b.numbers(there, 0, 0)
	must(t, cuda.CopyFromPeer(ctx, x, here.ID(), empty, there.ID()))
	before := a.faults.Total() + b.faults.Total()
	for what, c := range map[string]struct{ err, want error }{
		"a destination too short":      {cuda.CopyFromPeer(ctx, short, there.ID(), x, here.ID()), core.ErrInvalidRequest},
		"one device":                   {cuda.CopyFromPeer(ctx, short, there.ID(), short, there.ID()), core.ErrStreamMisuse},
		"the streams exchanged":        {cuda.CopyFromPeer(ctx, y, here.ID(), x, there.ID()), core.ErrStreamMisuse},
		"two managers with OnDevice":   {cuda.CopyOnDevice(ctx, y, x, there.ID()), core.ErrStreamMisuse},
		"a block in the wrong runtime": {b.Runtime.Launch(ctx, there.ID(), []core.Use{x.Use(core.Read)}, nil), core.ErrStreamMisuse},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", what, c.err, c.want)
		}
	}
	equal(t, "driver calls of what is refused", a.faults.Total()+b.faults.Total(), before)
	gone := a.numbers(here, 8, 1)
	must(t, gone.Free(ctx))
	for range 2 { // whichever end is prepared first, the other's intent is taken back
		expect.Error(t, cuda.CopyFromPeer(ctx, y, there.ID(), gone, here.ID()), core.ErrUseAfterFree, "a freed source")
		y = b.numbers(there, 8, 1)
	}
	equal(t, "open intents", a.Runtime.Stats().OpenIntents+b.Runtime.Stats().OpenIntents, 0)
}

// An intent that stands in the way is waited for until ctx ends, and the other
// end is taken back.
func TestPeerCopyWaitsForAnIntentUntilItsContextEnds(t *testing.T) {
	a, b := newPair(t, pairSchedules[0])
	here, there := a.leases(2), b.leases(1)[0]
	x, y := a.numbers(here[0], 8, 1), b.numbers(there, 8, 1)
	held, err := a.Runtime.PrepareBlockUse(ctx, x.BlockID(), here[0].ID(), core.Write)
	must(t, err)
	bounded, cancel := within(5)
	defer cancel()
	expect.Error(t, cuda.CopyFromPeer(bounded, y, there.ID(), x, here[1].ID()), context.DeadlineExceeded)
	equal(t, "open intents of the peer", b.Runtime.Stats().OpenIntents, 0)
	must(t, a.Runtime.AbortUse(ctx, held))
	must(t, cuda.CopyFromPeer(ctx, y, there.ID(), x, here[1].ID()))
}

// If neither the wait nor the synchronisation can be had, the source may be
// read for nobody knows how long.
func TestAPeerCopyThatCannotBeFencedPoisonsItsSource(t *testing.T) {
	a, b := newPair(t, pairSchedules[0], dirty)
	here, there := a.leases(1)[0], b.leases(1)[0]
	x, y := a.numbers(here, 8, 1), b.numbers(there, 8, 1)
	a.faults.FailMethod(drivertest.StreamWaitPeer, 1, driver.InvalidValue)
	b.faults.FailMethod(drivertest.StreamSynchronize, 1, driver.InvalidValue)
	if err := cuda.CopyFromPeer(ctx, y, there.ID(), x, here.ID()); !errors.Is(err, core.ErrDriver) {
		t.Fatalf("got %v", err)
	}
	equal(t, "poisoned", a.Runtime.Stats().Poisoned, 1)
	equal(t, "poisoned at the destination", b.Runtime.Stats().Poisoned, 0)
	if err := x.Free(ctx); err == nil {
		t.Error("a source that may still be read was freed")
	}
	must(t, y.Free(ctx))
}

// A lost device fails the copy at its own end and leaves its peer alone.
func TestALostPeerTakesNobodyAlong(t *testing.T) {
	for _, sourceLost := range []bool{true, false} {
		a, b := newPair(t, pairSchedules[0], dirty)
		here, there := a.leases(1)[0], b.leases(1)[0]
		x, y := a.numbers(here, 8, 1), b.numbers(there, 8, 1)
		a.sync(here)
		b.sync(there)
		lost, well := a, b
		if !sourceLost {
			lost, well = b, a
		}
		lost.Sim.LoseContext(driver.ECCUncorrectable)
		expect.Error(t, cuda.CopyFromPeer(ctx, y, there.ID(), x, here.ID()), core.ErrSticky)
		equal(t, "health of the lost device", lost.Runtime.Health().OK, false)
		equal(t, "health of its peer", well.Runtime.Health().OK, true)
		equal(t, "open intents of its peer", well.Runtime.Stats().OpenIntents, 0)
	}
}

// meddler calls a function whenever a copy from a peer is enqueued.
type meddler struct {
	*drivertest.Faults
	meddle func()
}

func (m *meddler) CopyFromPeerAsync(dst uint64, peer driver.Driver, src, n uint64, s driver.Stream) error {
	m.meddle()
	return m.Faults.CopyFromPeerAsync(dst, peer, src, n, s)
}

// The source's stream does not order the copy before it was made to wait for
// it, so launches on that very stream are kept away meanwhile.
func TestPeerCopyKeepsLaunchesOfItsOwnStreamAway(t *testing.T) {
	var m meddler
	a := newBench(t)
	b := newBench(t, func(c *teststack.Config) {
		c.Sim.Ordinal = 1
		wrap := c.Wrap
		c.Wrap = func(d driver.Driver) driver.Driver {
			wrap(d)
			m.Faults = drivertest.NewFaults(d)
			return &m
		}
	})
	here, there := a.leases(1)[0], b.leases(1)[0]
	x, y := a.numbers(here, 8, 1), b.numbers(there, 8, 1)
	m.meddle = func() {
		if writer, err := a.Runtime.PrepareBlockUse(ctx, x.BlockID(), here.ID(), core.Write); !errors.Is(err, core.ErrStreamMisuse) {
			t.Errorf("a write was announced between the copy and its fence: %v", err)
			must(t, a.Runtime.AbortUse(ctx, writer))
		}
		reader, err := a.Runtime.PrepareBlockUse(ctx, x.BlockID(), here.ID(), core.Read)
		must(t, err)
		must(t, a.Runtime.AbortUse(ctx, reader))
	}
	must(t, cuda.CopyFromPeer(ctx, y, there.ID(), x, here.ID()))

	writer, err := a.Runtime.PrepareBlockUse(ctx, x.BlockID(), here.ID(), core.Write)
	must(t, err)
	bounded, cancel := within(5)
	defer cancel()
	expect.Error(t, cuda.CopyFromPeer(bounded, y, there.ID(), x, here.ID()), context.DeadlineExceeded, "the copy did not wait for a launch announced on its stream")
	var finished sync.WaitGroup
	finished.Go(func() {
		time.Sleep(2 * time.Millisecond)
		must(t, a.Runtime.FinishUse(ctx, writer))
	})
	must(t, cuda.CopyFromPeer(ctx, y, there.ID(), x, here.ID()))
	finished.Wait()
	equal(t, "open intents", a.Runtime.Stats().OpenIntents+b.Runtime.Stats().OpenIntents, 0)
}

// Copies both ways and launches, all on one shared stream of each device.
func TestPeerCopiesShareStreams(t *testing.T) {
	underEachPair(t, func(t *testing.T, a, b *bench) {
		here, there := a.leases(1)[0], b.leases(1)[0]
		x, y := a.numbers(here, 64, 3), b.numbers(there, 64, 3)
		var all sync.WaitGroup
		each := func(work func() error) {
			all.Go(func() {
				for range 30 {
					if err := work(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		each(func() error { return cuda.CopyFromPeer(bounded, x, here.ID(), y, there.ID()) })
		each(func() error { return cuda.CopyFromPeer(bounded, y, there.ID(), x, here.ID()) })
		each(func() error { return cuda.Memset(bounded, x, here.ID(), 1) })
		each(func() error { return cuda.Memset(bounded, y, there.ID(), 1) })
		all.Wait()
	})
}
