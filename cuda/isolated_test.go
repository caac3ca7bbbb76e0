package cuda_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

func isolated(on *cuda.Lease, bytes uint64) core.Request {
	return core.Request{Bytes: bytes, Stream: on.ID(), Tag: "isolated", Isolated: true}
}

// isolate allocates a block with a mapping of its own.
func (b *bench) isolate(on *cuda.Lease, bytes uint64) core.Block {
	b.Helper()
	block, err := b.Runtime.Allocate(ctx, isolated(on, bytes))
	must(b, err)
	return block
}

// mapped requires so many granules mapped, on the device and in the statistics.
func (b *bench) mapped(what string, granules uint64) {
	b.Helper()
	equal(b, what+": bytes mapped on the device", b.Sim.Books().MappedBytes, granules*sim.Granule)
	equal(b, what+": bytes in the statistics", b.Runtime.Stats().Isolated, granules*sim.Granule)
}

// keeping bounds the addresses that are kept.
func keeping(granules uint64) func(*teststack.Config) {
	return func(c *teststack.Config) {
		c.Async.IsolatedAddresses = granules * sim.Granule
	}
}

func TestAnIsolatedBlockIsReadyForEveryStream(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	busy := b.hold(s[0])
	records := b.faults.Calls(drivertest.EventRecord)
	block := b.isolate(s[0], 1000)
	equal(t, "records of an allocation", b.faults.Calls(drivertest.EventRecord), records)
	equal(t, "size", block.Bytes, 1000)
	equal(t, "address", block.ID.Ptr%sim.Granule, 0)
	b.mapped("allocated", 1)
	equal(t, "launch elsewhere", b.launch(s[1], writes(block)), fenced{records: 1})
	b.sync(s[1]) // while its own stream is busy
	busy()
	equal(t, "launch on its own stream behind that", b.launch(s[0], readWrites(block)).waits, 0) // seen done
	b.free(block)
	b.drain()
	b.mapped("freed", 0)
}

func TestTheFreeOfAnIsolatedBlockWaitsForEveryUse(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.isolate(s[0], sim.Granule+1)
	release := b.hold(s[1])
	b.launch(s[1], writes(block))
	b.free(block)
	equal(t, "frees enqueued", b.faults.Calls(drivertest.MemFreeAsync), 0)
	for range 3 {
		must(t, b.Runtime.ReapPending(ctx))
	}
	b.mapped("in use", 2)
	st := b.Runtime.Stats()
	equal(t, "pending", st.Pending, core.Amount{Bytes: sim.Granule + 1, Requested: sim.Granule + 1, Blocks: 1})
	equal(t, "free counters", b.Async.FreedOn(s[0].ID()), core.FreeCounters{})
	short, cancel := within(20)
	defer cancel()
	expect.Error(t, b.Runtime.Drain(short), context.DeadlineExceeded, "a drain over a use")
	release()
	b.drain()
	b.mapped("drained", 0)
	st = b.Runtime.Stats()
	equal(t, "most mapped", st.IsolatedHigh, 2*sim.Granule)
	equal(t, "addresses kept", st.IsolatedAddresses, 2*sim.Granule)
	equal(t, "free counters", b.Async.FreedOn(s[0].ID()), core.FreeCounters{Queued: sim.Granule + 1, Completed: sim.Granule + 1})
	equal(t, "state", b.Runtime.State(block.ID), core.Freed)
}

func TestIsolatedBlocksAreReleasedOnceAndGiveTheirMemoryBack(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	heard := map[core.Generation]int{}
	b.Async.Subscribe(listener(func(released core.Block) { heard[released.ID.Generation]++ }))
	before, _, err := b.Sim.MemInfo()
	must(t, err)
	seen := map[uint64]bool{}
	for i := range 60 {
		block := b.isolate(s[i%2], 5000)
		if seen[block.ID.Ptr] {
			t.Fatalf("address %#x came again", block.ID.Ptr)
		}
		seen[block.ID.Ptr] = true
		b.launch(s[(i+1)%2], writes(block))
		b.launch(s[i%2], readWrites(block))
		b.free(block)
		must(t, b.Runtime.ReapPending(ctx))
	}
	b.drain()
	after, _, err := b.Sim.MemInfo()
	must(t, err)
	equal(t, "free memory", after, before)
	equal(t, "blocks heard of", len(heard), 60)
	for g, n := range heard {
		equal(t, "notices of "+g.String(), n, 1)
	}
	equal(t, "addresses kept", b.Runtime.Stats().IsolatedAddresses, 60*sim.Granule)
	equal(t, "regions reserved", b.Sim.Books().Reservations, 1)
}

type listener func(core.Block)

func (l listener) Released(b core.Block) { l(b) }

func TestALateAccessOfAnIsolatedBlockFaults(t *testing.T) {
	b := newBench(t, dirty)
	s := b.leases(1)[0]
	block := b.isolate(s, 5000)
	b.launch(s, writes(block))
	b.free(block)
	b.drain()
	must(t, b.kernel.Enqueue(s.Handle(), grid, mixArgs(1, writes(block))...)) // around the runtime
	err := b.Sim.StreamSynchronize(s.Handle())
	var d *core.DriverError
	if !errors.As(err, &d) || d.Code != driver.IllegalAddress || !d.Sticky {
		t.Fatalf("got %v", err)
	}
	f := b.Sim.Findings()
	if len(f) != 1 || f[0].Kind != sim.IllegalAddress || f[0].BlockPtr != block.ID.Ptr {
		t.Errorf("findings: %v", f)
	}
}

func TestTheOldestAddressesAreGivenBackBeyondTheLimit(t *testing.T) {
	b := newBench(t, keeping(4))
	s := b.leases(1)[0]
	b.faults.SetLog(true)
	var made, gone []uint64
	for range 9 {
		block := b.isolate(s, 100)
		made = append(made, block.ID.Ptr)
		b.free(block)
		b.drain()
	}
	for _, c := range b.faults.Log() {
		if c.Method == drivertest.MemUnreserve {
			gone = append(gone, c.Ptr)
		}
	}
	if !slices.Equal(gone, made[:5]) {
		t.Errorf("of %#x were given back %#x", made, gone)
	}
	equal(t, "addresses kept", b.Runtime.Stats().IsolatedAddresses, 4*sim.Granule)
	equal(t, "ranges reserved", b.Sim.Books().Reservations, 4)
	b.faults.FailEvery(drivertest.MemUnreserve, driver.InvalidValue)
	b.free(b.isolate(s, 100))
	err := b.Runtime.Drain(ctx)
	expect.Error(t, err, core.ErrDriver, "addresses that cannot be given back")
	b.faults.Clear()
	b.drain()
	equal(t, "ranges reserved", b.Sim.Books().Reservations, 4)
}

// The simulated device has 8 times as many addresses as bytes.
func TestKeptAddressesAreGivenUpBeforeAnAllocationFails(t *testing.T) {
	b := newBench(t, func(c *teststack.Config) { c.Sim.Bytes = 16 << 20 })
	s := b.leases(1)[0]
	for range 200 { // of 2 MiB: 400 MiB of 128
		b.free(b.isolate(s, 100))
		b.drain()
	}
	b.faults.FailEvery(drivertest.MemUnreserve, driver.InvalidValue)
	for failed := false; !failed; {
		block, err := b.Runtime.Allocate(ctx, isolated(s, 100))
		if failed = err != nil; failed {
			expect.Error(t, err, core.ErrOutOfMemory)
			break
		}
		b.free(block)
		b.drain()
	}
	b.faults.Clear()
	b.free(b.isolate(s, 100))
}

func TestAnIsolatedAllocationGetsWhatThePoolHoldsInVain(t *testing.T) {
	b := newBench(t, func(c *teststack.Config) { c.Sim.Bytes = 64 << 20 })
	s := b.leases(1)[0]
	b.free(b.alloc(s, 60<<20))
	b.drain()
	block := b.isolate(s, 50<<20)
	expect.ErrorOf(b.Runtime.Allocate(ctx, isolated(s, 50<<20)))(t, core.ErrOutOfMemory, "twice what there is")
	expect.ErrorOf(b.Runtime.Allocate(ctx, isolated(s, ^uint64(0)-5)))(t, core.ErrOutOfMemory, "all addresses there are")
	b.mapped("one block", 25)
	equal(t, "failures", b.Runtime.Stats().Failures, 2)
	b.free(block)
}

func TestAnIsolatedBlockIsRefusedWhereThereAreNone(t *testing.T) {
	b := newBench(t, func(c *teststack.Config) {
		wrap := c.Wrap
		c.Wrap = func(d driver.Driver) driver.Driver { return unmapping{wrap(d)} }
	})
	s := b.leases(1)[0]
	equal(t, "granularity", b.Async.Inspect().IsolationGranularity(), 0)
	equal(t, "features", b.Async.Features(), core.UseTracking|core.StreamOrdered)
	_, err := b.Runtime.Allocate(ctx, isolated(s, 100))
	expect.Error(t, err, errors.ErrUnsupported, "the pool's backend")
	direct := cuda.NewDirectResource(b.Sim)
	expect.ErrorOf(direct.Allocate(ctx, isolated(s, 100)))(t, errors.ErrUnsupported, "the direct backend")
}

func TestASliceCanBeIsolated(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	options := cuda.AllocOptions{Stream: l.ID(), Isolated: true}
	s, err := cuda.Alloc[uint32](ctx, b.Memory, 100, options)
	must(t, err)
	b.mapped("a slice", 1)
	must(t, cuda.Memset(ctx, s, l.ID(), 1))
	must(t, s.Free(ctx))
	b.drain()
	b.mapped("freed", 0)
	untracked := cuda.NewUntrackedManager(b.Driver, b.Streams, 0)
	expect.ErrorOf(cuda.Alloc[uint32](ctx, untracked, 100, options))(t, errors.ErrUnsupported, "without a runtime")
}

// unmapping is a device that maps no memory.
type unmapping struct{ driver.Driver }

func (u unmapping) Properties() (driver.Properties, error) {
	p, err := u.Driver.Properties()
	p.MapGranularity = 0
	return p, err
}

func TestIsolatedBlocksAndCaptures(t *testing.T) {
	var own core.Block
	duringCaptures(t, nil, func(b *bench, l *cuda.Lease) {
		_, err := b.Runtime.Allocate(ctx, isolated(l, 100))
		misuse(b.T, "an isolated allocation on a capturing stream", err)
		other := b.leases(1)[0]
		b.free(b.isolate(other, 100)) // elsewhere all goes on
		b.drain()
	})
	b := newBench(t)
	l := b.leases(1)[0]
	own = b.isolate(l, 100)
	g, err := l.Capture(ctx, "graph", nil, func(driver.Stream) error {
		b.free(own)
		must(t, b.Runtime.ReapPending(ctx))
		b.mapped("while its stream captures", 1)
		return nil
	})
	must(t, err)
	must(t, g.Close())
	b.drain()
	b.mapped("after the capture", 0)
}

func TestAnIsolatedBlockOutlivesItsStream(t *testing.T) {
	b := newBench(t)
	l, handle := b.adopt()
	block, late := b.isolate(l, 100), b.isolate(l, 100)
	release := b.hold(l)
	b.launch(l, writes(block, late))
	b.free(block)
	b.giveUp(l, handle)
	b.free(late)
	must(t, b.Runtime.ReapPending(ctx))
	b.mapped("behind the stream's work", 2)
	release()
	b.drain()
	b.mapped("drained", 0)
}

// Each step of an allocation fails, and then the way back as well.
func TestEachStepOfAnIsolatedAllocationMayFail(t *testing.T) {
	back := []drivertest.Method{drivertest.MemUnmap, drivertest.MemRelease, drivertest.MemUnreserve}
	steps := []drivertest.Method{drivertest.MemReserve, drivertest.MemCreate, drivertest.MemMap, drivertest.MemAccess, drivertest.MemRelease}
	for _, step := range steps {
		for _, undo := range append(back, "none") {
			t.Run(string(step+" and "+undo), func(t *testing.T) {
				b := newBench(t)
				s := b.leases(1)[0]
				b.faults.FailMethod(step, 1, driver.Unknown)
				if undo != "none" && undo != step {
					b.faults.FailEvery(undo, driver.Unknown)
				}
				_, err := b.Runtime.Allocate(ctx, isolated(s, 100))
				if !errors.Is(err, core.ErrDriver) {
					t.Fatalf("got %v", err)
				}
				equal(t, "live", b.Runtime.Stats().Live.Blocks, 0)
				b.faults.Clear()
				must(t, b.Runtime.ReapPending(ctx))
				b.mapped("reaped", 0)
				equal(t, "handles", b.Sim.Books().Handles, 0)
				b.free(b.isolate(s, 100))
			})
		}
	}
}

// TestIsolatedHammer uses and frees isolated blocks and others from many
// goroutines, with frees in mid-flight and unmaps that fail.
func TestIsolatedHammer(t *testing.T) {
	b := newBench(t, ticking, keeping(8))
	s := b.leases(4)
	begin := make(chan struct{})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			<-begin
			rng := rand.New(rand.NewPCG(11, uint64(g)))
			for range 30 {
				expect.Success(b, b.isolatedLife(rng, s))
			}
		})
	}
	close(begin)
	group.Wait()
	b.faults.Clear()
	b.drain()
	b.mapped("drained", 0)
	st := b.Runtime.Stats()
	equal(t, "allocations", st.Allocations, 240)
	equal(t, "deallocations", st.Deallocations, 240)
	equal(t, "outstanding", st.Outstanding(), core.Amount{})
	equal(t, "underflows", st.Underflows, 0)
	if kept := st.IsolatedAddresses; kept > 8*sim.Granule {
		t.Errorf("%d bytes of addresses are kept", kept)
	}
}

// isolatedLife is a block's, isolated twice in three times.
func (b *bench) isolatedLife(rng *rand.Rand, s []*cuda.Lease) error {
	req := isolated(s[rng.IntN(len(s))], 64)
	req.Isolated = rng.IntN(3) > 0
	block, err := b.Runtime.Allocate(ctx, req)
	if err != nil {
		return err
	}
	for range rng.IntN(3) {
		on := s[rng.IntN(len(s))]
		if err := b.kernel.Launch(ctx, b.Runtime, on, grid, declared(writes(block)), mixArgs(1, writes(block))...); err != nil {
			return err
		}
	}
	if rng.IntN(4) == 0 {
		b.faults.FailMethod(drivertest.MemUnmap, 1, driver.Unknown)
	}
	_, err = b.Runtime.Deallocate(ctx, block.ID)
	_ = b.Runtime.ReapPending(ctx) // fails for an unmap that was made to
	return err
}
