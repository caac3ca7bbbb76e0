package cuda_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// capture makes a graph of a kernel that does the uses, and closes it at the
// end of the test.
func (b *bench) capture(on *cuda.Lease, kernel *cuda.Kernel, uses ...[]use) *cuda.Graph {
	b.Helper()
	all := join(uses)
	g, err := on.Capture(ctx, "graph", declared(all), func(s driver.Stream) error {
		return kernel.Enqueue(s, grid, mixArgs(1, all)...)
	})
	must(b, err)
	b.Cleanup(func() { _ = g.Close() }) // a test may have closed it
	return g
}

// zeroed is a block of one word, which is 0.
func (b *bench) zeroed(on *cuda.Lease) core.Block {
	b.Helper()
	block := b.alloc(on, 8)
	must(b, b.Runtime.Launch(ctx, on.ID(), declared(writes(block)), func(context.Context) error {
		return b.Driver.MemsetAsync(block.ID.Ptr, 0, 8, on.Handle())
	}))
	return block
}

// word reads the block of one word.
func (b *bench) word(block core.Block, on *cuda.Lease) uint64 {
	b.Helper()
	got := make([]byte, 8)
	must(b, b.Runtime.Launch(ctx, on.ID(), declared(reads(block)), func(context.Context) error {
		return b.Driver.CopyToHostAsync(got, block.ID.Ptr, on.Handle())
	}))
	b.sync(on)
	return le64(got)
}

func useAfterFree(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, core.ErrUseAfterFree) {
		t.Errorf("%s: got %v, want a use after free", what, err)
	}
}

func TestEachLaunchOfAGraphIsFenced(t *testing.T) {
	b := newBench(t)
	s := b.leases(3)
	block := b.zeroed(s[0])
	g := b.capture(s[1], b.adder, readWrites(block))
	equal(t, "captured work that has run", b.word(block, s[0]), 0)
	const launches = 30
	for i := range launches {
		must(t, g.Launch(ctx, b.Runtime, s[i%3]))
		b.launch(s[(i+1)%3], reads(block))
	}
	equal(t, "the count", b.word(block, s[0]), launches)
	equal(t, "launches over another stream's write", b.Runtime.Stats().CrossStream > 0, true)
	b.free(block)
}

// The test above is worth something: without waits the oracle objects.
func TestTheOracleSeesAGraphWithoutFences(t *testing.T) {
	b := newBench(t, dirty)
	s := b.leases(2)
	block := b.zeroed(s[0])
	g := b.capture(s[1], b.adder, readWrites(block))
	release := b.hold(s[0])
	b.launch(s[0], writes(block))
	b.faults.DropWaits(true)
	must(t, g.Launch(ctx, b.Runtime, s[1]))
	b.faults.DropWaits(false)
	must(t, b.Sim.StreamSynchronize(s[1].Handle()))
	release()
	must(t, b.Sim.Synchronize())
	if len(b.Sim.Findings()) == 0 {
		t.Error("the oracle found nothing")
	}
}

// That is what a graph remembers its blocks for: its addresses are another's by
// now, and the launch would overwrite them.
func TestAGraphOverAFreedBlockIsRefused(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)
	freed, kept := b.alloc(s[0], 256), b.alloc(s[0], 256)
	g := b.capture(s[0], b.kernel, writes(freed, kept))
	must(t, g.Launch(ctx, b.Runtime, s[0]))
	b.free(freed)
	next := b.alloc(s[0], 256)
	equal(t, "the address of the next block", next.ID.Ptr, freed.ID.Ptr)
	before := b.faults.Calls(drivertest.GraphLaunch)
	useAfterFree(t, "a launch after the free", g.Launch(ctx, b.Runtime, s[0]))
	equal(t, "launches that the driver saw", b.faults.Calls(drivertest.GraphLaunch), before)
	equal(t, "open intents", b.Runtime.Stats().OpenIntents, 0)
	b.free(next, kept)
}

func TestABlockMayBeFreedWhileItIsCaptured(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	own, other := b.alloc(s[0], 256), b.alloc(s[1], 256)
	g, err := s[0].Capture(ctx, "graph", declared(writes(own, other)), func(h driver.Stream) error {
		err := b.kernel.Enqueue(h, grid, mixArgs(1, writes(own, other))...)
		b.free(own, other)
		equal(t, "state of a block of the capturing stream", b.Runtime.State(own.ID), core.Retired)
		return err
	})
	must(t, err)
	useAfterFree(t, "a launch", g.Launch(ctx, b.Runtime, s[0]))
	must(t, g.Close())
	b.drain()
	equal(t, "blocks on the device", b.Sim.Books().LiveBlocks, 0)
}

func TestALaunchOfAGraphWaitsForAConflictingLaunch(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	g := b.capture(s[0], b.kernel, writes(block))
	ticket := b.prepare(s[1], writes(block))
	bounded, cancel := within(20)
	defer cancel()
	if err := g.Launch(bounded, b.Runtime, s[0]); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want to give up waiting", err)
	}
	must(t, b.Runtime.AbortUse(ctx, ticket))
	must(t, g.Launch(ctx, b.Runtime, s[0]))
	b.free(block)
}

func TestAGraphIsClosedOnce(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)
	block := b.alloc(s[0], 256)
	g := b.capture(s[0], b.kernel, writes(block))
	b.faults.FailMethod(drivertest.GraphLaunch, 1, driver.OutOfMemory)
	expect.Error(t, g.Launch(ctx, b.Runtime, s[0]), core.ErrOutOfMemory)
	equal(t, "aborts", b.Runtime.Stats().Aborts, 1)
	must(t, g.Launch(ctx, b.Runtime, s[0]))
	b.faults.FailMethod(drivertest.GraphDestroy, 1, driver.InvalidValue)
	expect.Error(t, g.Close(), core.ErrDriver)
	must(t, g.Close())
	for _, err := range []error{g.Close(), g.Launch(ctx, b.Runtime, s[0])} {
		if !errors.Is(err, core.ErrClosed) {
			t.Errorf("got %v, want that it is closed", err)
		}
	}
	equal(t, "graphs on the device", b.Sim.Books().Graphs, 0)
	b.free(block)
}

func TestWhatACaptureRefuses(t *testing.T) {
	b, other := newBench(t), newBench(t, func(c *teststack.Config) { c.Sim.Ordinal = 1 })
	s, abroad := b.leases(2), other.leases(1)
	block, gone := b.alloc(s[0], 256), b.alloc(s[0], 256)
	b.free(gone)
	released := b.Lease(t, "released")
	must(t, released.Release())
	nothing := func(driver.Stream) error { t.Error("the work was asked for"); return nil }
	capture := func(l *cuda.Lease, uses []core.Use, forks ...*cuda.Lease) error {
		_, err := l.Capture(ctx, "graph", uses, nothing, forks...)
		return err
	}
	useAfterFree(t, "a freed block", capture(s[0], declared(writes(gone))))
	expect.Error(t, capture(s[0], []core.Use{{Block: block.ID}}), core.ErrInvalidRequest, "no access")
	misuse(t, "a released lease", capture(released, nil))
	misuse(t, "a released fork", capture(s[0], nil, released))
	misuse(t, "a stream twice", capture(s[0], nil, s[0]))
	misuse(t, "a stream of another device", capture(s[0], nil, abroad[0]))
	ticket := b.prepare(s[0], writes(block))
	misuse(t, "an announced launch", capture(s[0], nil))
	misuse(t, "an announced launch on a fork", capture(s[1], nil, s[0]))
	must(t, b.Runtime.AbortUse(ctx, ticket))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	expect.ErrorOf(s[0].Capture(ended, "graph", nil, nothing))(t, context.Canceled, "an ended context")
	g := b.capture(s[0], b.kernel, writes(block))
	misuse(t, "a launch on another device", g.Launch(ctx, other.Runtime, abroad[0]))
	must(t, g.Launch(ctx, b.Runtime, s[0])) // a refusal leaves nothing behind
	b.launch(s[1], writes(block))
	b.free(block)
}

func TestACaptureWhoseWorkFailsLeavesNoGraph(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)
	block := b.alloc(s[0], 256)
	broken := errors.New("broken")
	b.faults.FailMethod(drivertest.GraphDestroy, 1, driver.InvalidValue) // Close tries again
	expect.ErrorOf(s[0].Capture(ctx, "graph", nil, func(driver.Stream) error { return broken }))(t, broken)
	func() {
		defer func() { equal(t, "the panic", recover(), any(broken)) }()
		_, _ = s[0].Capture(ctx, "graph", nil, func(driver.Stream) error { panic(broken) })
	}()
	_, err := s[0].Capture(ctx, "graph", nil, func(h driver.Stream) error { return b.Sim.StreamSynchronize(h) })
	var e *core.DriverError
	if !errors.As(err, &e) || e.Code != driver.CaptureUnsupported {
		t.Errorf("got %v, want what invalidated the capture", err)
	}
	b.launch(s[0], writes(block))
	b.free(block)
}

func TestStreamsThatACaptureDrawsInAreKeptOutOf(t *testing.T) {
	b := newBench(t)
	s := b.leases(3)
	x, y := b.zeroed(s[0]), b.zeroed(s[1])
	e, err := b.Driver.EventCreate()
	must(t, err)
	g, err := s[0].Capture(ctx, "graph", declared(readWrites(x, y)), func(h driver.Stream) error {
		fork := s[1].Handle()
		misuse(t, "a launch on the fork", b.Runtime.Launch(ctx, s[1].ID(), nil, nil))
		misuse(t, "the release of the fork", s[1].Release())
		b.launch(s[2], reads(x, y)) // on a stream that has nothing to do with it
		return errors.Join(b.Driver.EventRecord(e, h), b.Driver.StreamWait(fork, e),
			b.adder.Enqueue(h, grid, mixArgs(0, readWrites(x))...), b.adder.Enqueue(fork, grid, mixArgs(0, readWrites(y))...),
			b.Driver.EventRecord(e, fork), b.Driver.StreamWait(h, e))
	}, s[1])
	must(t, err)
	for range 3 {
		must(t, g.Launch(ctx, b.Runtime, s[2]))
	}
	equal(t, "what the first stream's part counts", b.word(x, s[0]), 3)
	equal(t, "what the fork's part counts", b.word(y, s[1]), 3)
	must(t, errors.Join(g.Close(), b.Driver.EventDestroy(e)))
	b.free(x, y)
}
