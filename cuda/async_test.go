package cuda_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// poolless is a device without memory pools.
type poolless struct{ drivertest.Null }

func (*poolless) Properties() (driver.Properties, error) {
	return driver.Properties{Name: "old"}, nil
}

func TestADeviceWithoutPoolsIsRefused(t *testing.T) {
	p, err := cuda.NewStreamPool(new(poolless), cuda.StreamPoolConfig{})
	must(t, err)
	_, err = cuda.NewAsyncResource(new(poolless), p, cuda.AsyncConfig{})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "DirectResource") {
		t.Errorf("got %v", err)
	}
	must(t, p.Close(ctx))
}

func TestResourcesSayWhatTheyAre(t *testing.T) {
	b := newBench(t)
	equal(t, "async", cuda.NewDirectResource(b.Sim).String(), "direct(sim:0)")
	equal(t, "features", b.Async.Features(), core.UseTracking|core.StreamOrdered|core.Isolation)
	equal(t, "ordinal", b.Async.Ordinal(), 0)
	if b.Async.Unwrap() != nil || cuda.NewDirectResource(b.Sim).Unwrap() != nil {
		t.Error("a backend has an upstream")
	}
}

func TestPendingBytesAreKeptUntilTheDeviceHasPassedThem(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	block := b.alloc(l, 1000)
	release := b.hold(l)
	b.free(block)
	must(t, b.Runtime.ReapPending(ctx))
	st := b.Runtime.Stats()
	equal(t, "pending", st.Pending, core.Amount{Bytes: 1000, Requested: 1000, Blocks: 1})
	equal(t, "outstanding", b.Runtime.BytesOutstanding(), 1000)
	release()
	b.drain()
	equal(t, "outstanding", b.Runtime.BytesOutstanding(), 0)
}

func TestTheReaperTicksWhenTheServiceIsQuiet(t *testing.T) {
	b := newBench(t, ticking)
	block := b.alloc(b.leases(1)[0], 256)
	b.free(block)
	deadline := time.Now().Add(patience)
	for b.Runtime.State(block.ID) != core.Freed {
		if time.Now().After(deadline) {
			t.Fatal("nobody reaped")
		}
		time.Sleep(time.Millisecond)
	}
	calls := func() uint64 {
		before := b.faults.Total()
		time.Sleep(20 * time.Millisecond)
		return b.faults.Total() - before
	}
	for calls() > 0 { // the tick that released the block has to end
		if time.Now().After(deadline) {
			t.Fatal("an idle reaper goes on calling the driver")
		}
	}
	equal(t, "driver calls of an idle reaper", calls(), 0)
}

func TestManyFreesShareOneMark(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	blocks := b.allocs(l, 30, 256)
	b.drain()
	records := b.faults.Calls(drivertest.EventRecord)
	b.free(blocks...)
	b.drain()
	// two marks, and the readiness of the blocks that are live at the first
	if n := b.faults.Calls(drivertest.EventRecord) - records; n > 3 {
		t.Errorf("%d records for 30 frees", n)
	}
}

func TestLargeFreesAreLookedAtAtOnce(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	block := b.alloc(l, 40<<20)
	b.sync(l)
	b.free(block)
	equal(t, "state", b.Runtime.State(block.ID), core.Freed)
}

func TestPoolFiguresAreReadByTheReaper(t *testing.T) {
	b := newBench(t)
	block := b.alloc(b.leases(1)[0], 1000)
	must(t, b.Runtime.ReapPending(ctx))
	st := b.Runtime.Stats()
	equal(t, "used", st.PoolUsed, 1000)
	if st.Reserved < sim.Granule {
		t.Errorf("reserved %d", st.Reserved)
	}
	pool, err := b.Async.PoolStats()
	must(t, err)
	if pool.Reserved != st.Reserved || pool.Used != 1000 || pool.UsedHigh != 1000 {
		t.Errorf("the driver says %d reserved, %d used, %d at most", pool.Reserved, pool.Used, pool.UsedHigh)
	}
	b.free(block)
}

func TestCloseMayBeRepeated(t *testing.T) {
	b := newBench(t, dirty) // the stack closes the resource before the runtime
	b.faults.FailMethod(drivertest.PoolDestroy, 1, driver.InvalidValue)
	expect.Error(t, b.Async.Close(ctx), core.ErrDriver, "a failing close")
	must(t, b.Async.Close(ctx))
	calls := b.faults.Calls(drivertest.PoolDestroy)
	must(t, b.Async.Close(ctx))
	equal(t, "pools destroyed by another close", b.faults.Calls(drivertest.PoolDestroy)-calls, 0)
	equal(t, "pools left", b.Sim.Books().Pools, 0)
}

func TestCloseWithAStalledStreamReturnsWhenItsContextEnds(t *testing.T) {
	b := newBench(t, dirty)
	l := b.leases(1)[0]
	block := b.alloc(l, 256)
	release := b.hold(l)
	b.free(block)
	bounded, cancel := within(5)
	defer cancel()
	if err := b.Async.Close(bounded); err == nil {
		t.Error("pending frees were not mentioned")
	}
	release()
}

func TestListenersAreToldExactlyOnce(t *testing.T) {
	b := newBench(t, ticking)
	told := new(notices)
	b.Async.Subscribe(told)
	s := b.leases(2)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for range 200 {
				block, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: s[i%2].ID()})
				if err == nil {
					_, err = b.Runtime.Deallocate(ctx, block.ID)
				}
				if err == nil {
					err = b.Runtime.ReapPending(ctx)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.drain()
	told.mu.Lock()
	defer told.mu.Unlock()
	equal(t, "blocks told", len(told.of), 800)
	for g, n := range told.of {
		if n != 1 {
			t.Errorf("%v was told %d times", g, n)
		}
	}
}

type notices struct {
	mu sync.Mutex
	of map[core.Generation]int
}

func (n *notices) Released(b core.Block) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = map[core.Generation]int{}
	}
	n.of[b.ID.Generation]++
}

func TestBlocksAreListed(t *testing.T) {
	b := newBench(t)
	blocks := b.allocs(b.leases(1)[0], 3, 256)
	direct := cuda.NewDirectResource(b.Driver)
	own, err := direct.Allocate(ctx, core.Request{Bytes: 8, Tag: "own"})
	must(t, err)
	for name, c := range map[string]struct {
		inspector core.Inspector
		want      int
	}{"async": {b.Async.Inspect(), 3}, "direct": {direct.Inspect(), 1}} {
		n, first := 0, 0
		c.inspector.Blocks(func(i core.BlockInfo) bool { n++; return i.Block.State == core.Live })
		c.inspector.Blocks(func(core.BlockInfo) bool { first++; return false })
		equal(t, name+" blocks", n, c.want)
		equal(t, name+" blocks until told to stop", first, 1)
	}
	_, err = direct.Deallocate(ctx, own.ID)
	must(t, err)
	b.free(blocks...)
}
