package cuda_test

import (
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
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// poolMeddler lets a test do something while the pool is read, or change what is
// read.
type poolMeddler struct {
	driver.Driver
	reading atomic.Pointer[func(*driver.PoolStats)]
	asking  atomic.Pointer[func()]
}

func (d *poolMeddler) Unwrap() driver.Driver { return d.Driver }

func (d *poolMeddler) PoolStats(p driver.Pool) (driver.PoolStats, error) {
	stats, err := d.Driver.PoolStats(p)
	if meddle := d.reading.Load(); meddle != nil {
		(*meddle)(&stats)
	}
	return stats, err
}

func (d *poolMeddler) MemInfo() (free, total uint64, err error) {
	if meddle := d.asking.Load(); meddle != nil {
		(*meddle)()
	}
	return d.Driver.MemInfo()
}

func newMeddled(t *testing.T) (*bench, *poolMeddler) {
	m := &poolMeddler{}
	b := newBench(t, func(c *teststack.Config) {
		wrap := c.Wrap
		c.Wrap = func(d driver.Driver) driver.Driver {
			m.Driver = wrap(d)
			return m
		}
	})
	return b, m
}

func (b *bench) wantDrift(when string, want int64) {
	b.Helper()
	drift, err := b.Backend.Drift()
	if drift.Bytes != want || !drift.Known || err != nil {
		b.Errorf("%s: drift %d (%v, %v), want %d", when, drift.Bytes, drift.Known, err, want)
	}
}

func TestNoStateOfABlockDrifts(t *testing.T) {
	b := newBench(t)
	x, y := b.leases(2)[0], b.leases(1)[0]
	b.wantDrift("nothing", 0)
	live, used := b.alloc(x, 1<<20), b.alloc(x, 3000)
	b.wantDrift("live", 0)

	release := b.hold(y)
	b.launch(y, writes(used))
	b.free(used)
	equal(b, "pending blocks", b.Async.Stats().Pending.Blocks, 1)
	b.wantDrift("pending on a launch that does not end", 0)

	announced := b.prepare(x, writes(live))
	b.free(live)
	b.wantDrift("given back under an open intent", 0)
	must(b, b.Runtime.FinishUse(ctx, announced))
	b.wantDrift("the intent closed", 0)

	isolated, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 5000, Stream: x.ID(), Isolated: true})
	must(b, err)
	b.wantDrift("isolated", 0)
	b.free(isolated)
	b.wantDrift("isolated and pending", 0)
	release()
	b.drain()
	b.wantDrift("nothing left", 0)
}

func TestAFailedFreeDoesNotDrift(t *testing.T) {
	b := newBench(t)
	x := b.leases(1)[0]
	block := b.alloc(x, 4096)
	b.faults.FailMethod(drivertest.MemFreeAsync, 1, driver.InvalidValue)
	if _, err := b.Runtime.Deallocate(ctx, block.ID); !errors.Is(err, core.ErrDriver) {
		t.Fatalf("the free did not fail: %v", err)
	}
	b.wantDrift("the free failed", 0)
	b.free(block)
	b.drain()
}

func TestAdoptedStreamsThatAreGoneDoNotDrift(t *testing.T) {
	b := newBench(t)
	handle, err := b.Driver.StreamCreate()
	must(b, err)
	l, err := b.Streams.Adopt(handle, "mine")
	must(b, err)
	kept, freed := b.alloc(l, 4096), b.alloc(l, 100)
	b.free(freed)
	must(b, l.Release())
	must(b, b.Driver.StreamDestroy(handle))
	b.drain()
	b.wantDrift("the stream is gone and a block of it is not", 0)
	b.free(kept)
	b.drain()
	b.wantDrift("both are gone", 0)
}

// What differs is told, with its sign.
func TestAWrongPoolDrifts(t *testing.T) {
	b, m := newMeddled(t)
	for _, lie := range []int64{4096, -4096} {
		block := b.alloc(b.leases(1)[0], 8192)
		lying := func(s *driver.PoolStats) { s.Used = uint64(int64(s.Used) + lie) }
		m.reading.Store(&lying)
		b.wantDrift("the pool lies", -lie)
		m.reading.Store(nil)
		b.free(block)
	}
}

// An allocation in the middle of a reading, which taken by itself would be a
// drift of its size, makes the reading be taken again.
func TestAnAllocationDuringAReadingIsNoDrift(t *testing.T) {
	b, m := newMeddled(t)
	x := b.leases(1)[0]
	var blocks []core.Block
	meddle := func(*driver.PoolStats) {
		if len(blocks) < 2 {
			blocks = append(blocks, b.alloc(x, 1<<20))
		}
	}
	m.reading.Store(&meddle)
	before := b.faults.Calls(drivertest.PoolStats)
	b.wantDrift("after two allocations", 0)
	equal(b, "readings of the pool", b.faults.Calls(drivertest.PoolStats)-before, 3)
	m.reading.Store(nil)
	b.free(blocks...)
}

func TestADeviceThatIsNeverQuietHasNoDriftToTell(t *testing.T) {
	b, m := newMeddled(t)
	x := b.leases(1)[0]
	meddle := func(*driver.PoolStats) { b.free(b.alloc(x, 64)) }
	m.reading.Store(&meddle)
	drift, err := b.Async.Drift()
	if drift.Bytes != 0 || drift.Known || err != nil {
		t.Errorf("drift %d, %v, %v", drift.Bytes, drift.Known, err)
	}
	m.reading.Store(nil)
}

func TestAPoolThatCannotBeReadIsAnError(t *testing.T) {
	b := newBench(t)
	b.faults.FailMethod(drivertest.PoolStats, 1, driver.InvalidValue)
	if drift, err := b.Async.Drift(); drift.Known || !errors.Is(err, core.ErrDriver) {
		t.Errorf("%v, %v", drift.Known, err)
	}
}

// Many goroutines allocate, launch and free, in the pool and outside it, and
// pause, while the drift is asked for all the time: it is never anything but 0.
func TestDriftHammer(t *testing.T) {
	b := newBench(t, ticking)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var done atomic.Bool
	var told atomic.Int64
	var workers, watcher sync.WaitGroup
	for i := range 4 {
		l := b.leases(1)[0]
		workers.Go(func() { b.churn(l, rand.New(rand.NewPCG(seed, uint64(i))), func() bool { return told.Load() > 0 }) })
	}
	watcher.Go(func() {
		for !done.Load() {
			drift, err := b.Async.Drift()
			if drift.Bytes != 0 || err != nil {
				t.Errorf("drift %d, %v", drift.Bytes, err)
			}
			if drift.Known {
				told.Add(1)
			}
		}
	})
	workers.Wait()
	done.Store(true)
	watcher.Wait()
	b.drain()
	b.wantDrift("at the end", 0)
}

// churn goes on until there was a quiet moment, too: the drift is told of no other.
func (b *bench) churn(l *cuda.Lease, random *rand.Rand, quiet func() bool) {
	for i := 0; i < 300 || !quiet(); i++ {
		block, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 1 + random.Uint64N(1<<16), Stream: l.ID(), Isolated: random.IntN(8) == 0})
		if err != nil {
			b.Error(err)
			return
		}
		if random.IntN(2) == 0 {
			ticket, err := b.Runtime.PrepareUse(ctx, core.UseRequest{Stream: l.ID(), Uses: []core.Use{{Block: block.ID, Access: core.Write}}})
			if err == nil {
				err = b.Runtime.FinishUse(ctx, ticket)
			}
			expect.Success(b, err)
		}
		if _, err := b.Runtime.Deallocate(ctx, block.ID); err != nil {
			b.Error(err)
		}
		time.Sleep(time.Duration(random.IntN(200)) * time.Microsecond)
	}
}
