package cuda_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// grid is the shape of every launch: the kernels are Go functions.
var grid = cuda.Grid{}

// patience bounds what should end at once, on the slowest machine.
const patience = 2 * time.Minute

// bench is a stack whose driver calls are counted and can be made to fail,
// with kernels that touch any blocks. At the end of the test nothing may be
// left on the device and the oracle must be silent.
type bench struct {
	*testing.T
	*teststack.Stack
	faults        *drivertest.Faults
	kernel, adder *cuda.Kernel
}

func newBench(t *testing.T, change ...func(*teststack.Config)) *bench {
	t.Helper()
	b := &bench{T: t}
	cfg := teststack.Config{Sim: sim.Config{Bytes: 512 << 20}, Streams: 40, Async: cuda.AsyncConfig{ReapInterval: -1}}
	cfg.Wrap = func(d driver.Driver) driver.Driver {
		b.faults = drivertest.NewFaults(d)
		return b.faults
	}
	for _, f := range change {
		f(&cfg)
	}
	b.Stack = teststack.Open(t, cfg)
	b.kernel, b.adder = loadMix(t, b.Sim), loadKernel(t, b.Sim, addKernel)
	return b
}

// withSchedule says who decides when the device does what.
func withSchedule(s sim.Schedule) func(*teststack.Config) {
	return func(c *teststack.Config) { c.Sim.Schedule = s }
}

func ticking(c *teststack.Config) { c.Async.ReapInterval = time.Millisecond }

// dirty is for tests after which something is left on purpose.
func dirty(c *teststack.Config) { c.Dirty = true }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func (b *bench) leases(n int) []*cuda.Lease {
	b.Helper()
	var all []*cuda.Lease
	for range n {
		all = append(all, b.Lease(b, "test"))
	}
	return all
}

func (b *bench) alloc(on *cuda.Lease, bytes uint64) core.Block {
	b.Helper()
	block, err := b.Runtime.Allocate(ctx, core.Request{Bytes: bytes, Stream: on.ID(), Tag: "test"})
	must(b, err)
	return block
}

func (b *bench) allocs(on *cuda.Lease, n int, bytes uint64) []core.Block {
	b.Helper()
	var all []core.Block
	for range n {
		all = append(all, b.alloc(on, bytes))
	}
	return all
}

func (b *bench) free(blocks ...core.Block) {
	b.Helper()
	for _, block := range blocks {
		_, err := b.Runtime.Deallocate(ctx, block.ID)
		must(b, err)
	}
}

func (b *bench) drain() {
	b.Helper()
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	must(b, b.Runtime.Drain(bounded))
}

func (b *bench) sync(leases ...*cuda.Lease) {
	b.Helper()
	for _, l := range leases {
		bounded, cancel := context.WithTimeout(ctx, patience)
		must(b, b.Streams.Synchronize(bounded, l.ID()))
		cancel()
	}
}

// hold keeps what is enqueued on l from now on from running.
func (b *bench) hold(l *cuda.Lease) (release func()) {
	b.Helper()
	release, err := b.Sim.Hold(l.Handle())
	must(b, err)
	b.Cleanup(release)
	return release
}

// use is a block and what a launch does with it.
type use struct {
	block  core.Block
	access core.Access
}

func reads(blocks ...core.Block) []use      { return usesOf(core.Read, blocks) }
func writes(blocks ...core.Block) []use     { return usesOf(core.Write, blocks) }
func readWrites(blocks ...core.Block) []use { return usesOf(core.ReadWrite, blocks) }

func usesOf(a core.Access, blocks []core.Block) []use {
	var all []use
	for _, block := range blocks {
		all = append(all, use{block, a})
	}
	return all
}

func declared(uses []use) []core.Use {
	var all []core.Use
	for _, u := range uses {
		all = append(all, core.Use{Block: u.block.ID, Access: u.access})
	}
	return all
}

// fenced is what the fences of one launch cost.
type fenced struct{ waits, elided, records int }

// launch runs a kernel that really does the uses and returns what its fences
// cost, as the driver saw it. It fails the test if the ticket says otherwise.
func (b *bench) launch(on *cuda.Lease, uses ...[]use) fenced {
	b.Helper()
	t := b.prepare(on, uses...)
	got := fenced{t.Waits(), t.Elided(), 0}
	b.enqueue(on, uses...)
	records := b.faults.Calls(drivertest.EventRecord)
	must(b, b.Runtime.FinishUse(ctx, t))
	got.records = int(b.faults.Calls(drivertest.EventRecord) - records)
	return got
}

func (b *bench) prepare(on *cuda.Lease, uses ...[]use) core.Ticket {
	b.Helper()
	before := b.faults.Calls(drivertest.StreamWait)
	t, err := b.Runtime.PrepareUse(ctx, core.UseRequest{Stream: on.ID(), Launch: "mix", Uses: declared(join(uses))})
	must(b, err)
	equal(b, "waits that the driver saw", int(b.faults.Calls(drivertest.StreamWait)-before), t.Waits())
	return t
}

// freeWaits frees the block and returns how many waits that queued.
func (b *bench) freeWaits(block core.Block) int {
	b.Helper()
	before := b.faults.Calls(drivertest.StreamWait)
	b.free(block)
	return int(b.faults.Calls(drivertest.StreamWait) - before)
}

func join(lists [][]use) []use {
	var all []use
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// within is a context that ends after some milliseconds.
func within(ms int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
}
