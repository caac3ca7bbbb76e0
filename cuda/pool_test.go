package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

const poolPage = sim.Granule

// pooled makes the backend a pool that holds at most so many pages; 0: no limit.
func pooled(pages uint64) func(*teststack.Config) {
	return func(c *teststack.Config) { c.Pool = &cuda.PoolConfig{Limit: pages * poolPage} }
}

// counts fails unless memory was found elsewhere exactly so often.
func (b *bench) counts(want moves) {
	b.Helper()
	now := b.Pool.Stats().OwnPool
	equal(b, "memory found elsewhere", moves{now.Takeovers.Count, now.Steals.Count, now.Remaps.Count, now.Growths.Count}, want)
}

// moves is how often which were made.
type moves struct{ Takeovers, Steals, Remaps, Growths uint64 }

func TestADeviceThatMapsNothingHasNoPool(t *testing.T) {
	p, err := cuda.NewStreamPool(new(poolless), cuda.StreamPoolConfig{})
	must(t, err)
	_, err = cuda.NewPoolResource(new(poolless), p, cuda.PoolConfig{})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "AsyncResource") {
		t.Errorf("got %v", err)
	}
	must(t, p.Close(ctx))
}

func TestAPoolNeedsAPage(t *testing.T) {
	d, err := sim.Open(sim.Config{})
	must(t, err)
	p, err := cuda.NewStreamPool(d, cuda.StreamPoolConfig{})
	must(t, err)
	_, err = cuda.NewPoolResource(d, p, cuda.PoolConfig{Limit: poolPage - 1})
	expect.Error(t, err, core.ErrInvalidRequest)
	must(t, p.Close(ctx))
	must(t, d.Close())
}

func TestAStreamUsesItsMemoryAgainWithoutADriverCall(t *testing.T) {
	b := newBench(t, pooled(0))
	l := b.leases(1)[0]
	first := b.alloc(l, 1000)
	release := b.hold(l)
	b.free(first)
	calls := b.faults.Total()
	second := b.alloc(l, 1000)
	equal(t, "driver calls", b.faults.Total()-calls, 0)
	equal(t, "address", second.ID.Ptr, first.ID.Ptr)
	release()
	b.free(second)
	b.counts(moves{Growths: 1})
}

func TestAnotherStreamTakesOverWhatItComesAfter(t *testing.T) {
	b := newBench(t, pooled(1))
	s := b.leases(2)
	first, shared := b.alloc(s[0], poolPage/2), b.alloc(s[0], poolPage/2)
	release := b.hold(s[0])
	b.free(first, shared)
	// The free needs a place behind it that the other stream waits for.
	marker := b.isolate(s[0], 1)
	b.launch(s[0], writes(marker))
	b.launch(s[1], reads(marker))
	waits := b.Pool.Stats().WaitsQueued
	again := b.alloc(s[1], poolPage)
	equal(t, "waits for memory", b.Pool.Stats().WaitsQueued-waits, 0)
	b.counts(moves{Growths: 1, Takeovers: 1})
	release()
	b.free(again, marker)
}

func TestAnotherStreamTakesOverWhatTheDeviceHasPassed(t *testing.T) {
	b := newBench(t, pooled(1))
	s := b.leases(2)
	b.free(b.alloc(s[0], poolPage))
	b.drain()
	b.free(b.alloc(s[1], poolPage))
	b.counts(moves{Growths: 1, Takeovers: 1})
}

func TestDeviceOrderTakesNothingOverThatTheHostHasSeen(t *testing.T) {
	b := newBench(t, pooled(1), func(c *teststack.Config) { c.DeviceOrder = true })
	s := b.leases(2)
	b.free(b.alloc(s[0], poolPage))
	b.drain()
	b.free(b.alloc(s[1], poolPage))
	b.counts(moves{Growths: 1, Steals: 1})
}

// freeBehindWork frees memory behind work that is not done until release is called.
func (b *bench) freeBehindWork(l *cuda.Lease, bytes uint64) (release func()) {
	b.Helper()
	block := b.alloc(l, bytes)
	release = b.hold(l)
	b.launch(l, writes(block))
	b.free(block)
	return release
}

func TestAnotherStreamWaitsForWhatItSteals(t *testing.T) {
	b := newBench(t, pooled(1))
	s := b.leases(2)
	release := b.freeBehindWork(s[0], poolPage)
	second := b.alloc(s[1], poolPage)
	b.counts(moves{Growths: 1, Steals: 1})
	equal(t, "waits", b.Pool.Stats().WaitsQueued, 1)
	b.launch(s[1], writes(second)) // the oracle sees whether it comes after the first
	release()
	b.free(second)
}

// Two pages lie behind work, and the pool may hold two more: three in a row are both.
func TestAWaitAndGrowthServeTogether(t *testing.T) {
	b := newBench(t, pooled(4))
	s := b.leases(2)
	release := b.freeBehindWork(s[0], 2*poolPage)
	equal(t, "free behind work", b.Pool.Stats().OwnPool.Behind, 2*poolPage)
	second := b.alloc(s[1], 3*poolPage)
	b.counts(moves{Growths: 2, Steals: 1})
	equal(t, "waits", b.Pool.Stats().WaitsQueued, 1)
	b.launch(s[1], writes(second))
	release()
	b.free(second)
	b.drain()
	equal(t, "free behind work", b.Pool.Stats().OwnPool.Behind, 0)
}

// A request that growth cannot serve either makes its stream wait for nothing.
func TestARefusedRequestQueuesNoWait(t *testing.T) {
	b := newBench(t, pooled(3))
	s := b.leases(2)
	release := b.freeBehindWork(s[0], 2*poolPage)
	_, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 4 * poolPage, Stream: s[1].ID()})
	expect.Error(t, err, core.ErrOutOfMemory)
	b.counts(moves{Growths: 1})
	equal(t, "waits", b.Pool.Stats().WaitsQueued, 0)
	release()
}

// A page of each of three streams: who needs them all waits for the others once.
func TestPagesOfSeveralStreamsInARowAreTakenTogether(t *testing.T) {
	b := newBench(t, pooled(3))
	s := b.leases(3)
	blocks := []core.Block{b.alloc(s[0], poolPage), b.alloc(s[1], poolPage), b.alloc(s[2], poolPage)}
	for i, block := range blocks {
		b.hold(s[i])
		b.launch(s[i], writes(block))
	}
	b.free(blocks...)
	all := b.alloc(s[1], 3*poolPage)
	equal(t, "address", all.ID.Ptr, blocks[0].ID.Ptr)
	b.counts(moves{Growths: 3, Steals: 2})
	equal(t, "waits", b.Pool.Stats().WaitsQueued, 2)
	b.launch(s[1], writes(all))
	b.free(all)
}

func TestOfPagesInARowThoseAreTakenOverThatTheStreamComesAfter(t *testing.T) {
	b := newBench(t, pooled(3))
	s := b.leases(3)
	blocks := []core.Block{b.alloc(s[0], poolPage), b.alloc(s[1], poolPage), b.alloc(s[2], poolPage)}
	b.free(blocks[0])
	b.drain()
	release := b.hold(s[1])
	b.launch(s[1], writes(blocks[1]))
	b.free(blocks[1:]...)
	all := b.alloc(s[2], 3*poolPage)
	b.counts(moves{Growths: 3, Takeovers: 1, Steals: 1})
	b.launch(s[2], writes(all))
	release()
	b.free(all)
}

// A stream that captures gives none of its pages, and those that were taken with them are not lost.
func TestPagesOfAStreamThatCapturesAreLeftOutOfARow(t *testing.T) {
	b := newBench(t, pooled(2))
	s := b.leases(2)
	l, handle := b.adopt()
	first, second := b.alloc(s[0], poolPage), b.alloc(l, poolPage)
	release := b.hold(s[0])
	b.launch(s[0], writes(first))
	b.launch(l, writes(first, second))
	b.free(first, second)
	must(t, b.Sim.StreamBeginCapture(handle))
	_, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 2 * poolPage, Stream: s[1].ID()})
	expect.Error(t, err, core.ErrOutOfMemory)
	graph, err := b.Sim.StreamEndCapture(handle)
	must(t, err)
	must(t, b.Sim.GraphDestroy(graph))
	two := b.alloc(s[1], 2*poolPage)
	b.launch(s[1], writes(two))
	release()
	b.free(two)
	b.drain()
	b.giveUp(l, handle)
}

// The device works on the last free range, which lacks one page.
func TestThePoolGrowsByWhatTheLastFreeRangeLacks(t *testing.T) {
	b := newBench(t, pooled(2))
	l := b.leases(1)[0]
	first := b.alloc(l, poolPage)
	release := b.hold(l)
	b.launch(l, writes(first))
	b.free(first)
	two := b.alloc(l, 2*poolPage)
	equal(t, "address", two.ID.Ptr, first.ID.Ptr)
	b.counts(moves{Growths: 2})
	equal(t, "reserved", b.Pool.Stats().Reserved, 2*poolPage)
	b.launch(l, writes(two))
	release()
	b.free(two)
}

// Work that nobody declared is on the stream before the free, too.
func TestMemoryComesAfterWorkThatNobodyDeclared(t *testing.T) {
	b := newBench(t, pooled(1))
	s := b.leases(2)
	first := b.alloc(s[0], poolPage)
	release := b.hold(s[0])
	must(t, b.Driver.MemsetAsync(first.ID.Ptr, 1, 64, s[0].Handle()))
	b.free(first)
	second := b.alloc(s[1], poolPage)
	must(t, b.Driver.MemsetAsync(second.ID.Ptr, 2, 64, s[1].Handle()))
	release()
	b.free(second)
}

func TestPagesThatAreFreeApartAreMappedInARow(t *testing.T) {
	b := newBench(t, pooled(3))
	l := b.leases(1)[0]
	blocks := b.allocs(l, 3, poolPage)
	b.free(blocks[0], blocks[2])
	b.drain()
	two := b.alloc(l, 2*poolPage)
	b.counts(moves{Growths: 3, Remaps: 1})
	b.launch(l, writes(two, blocks[1]))
	b.free(two, blocks[1])
}

// Pages that the device has not come to are not unmapped: the request is refused, and says why.
func TestPagesInUseAreNotMappedAnew(t *testing.T) {
	b := newBench(t, pooled(3))
	l := b.leases(1)[0]
	blocks := b.allocs(l, 3, poolPage)
	release := b.hold(l)
	b.launch(l, writes(blocks[0], blocks[2]))
	b.free(blocks[0], blocks[2])
	unmaps := b.faults.Calls(drivertest.MemUnmap)
	_, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 2 * poolPage, Stream: l.ID()})
	if !errors.Is(err, core.ErrOutOfMemory) || !strings.Contains(err.Error(), "behind work that the device has not done") {
		t.Errorf("got %v", err)
	}
	equal(t, "unmaps", b.faults.Calls(drivertest.MemUnmap)-unmaps, 0)
	release()
	b.sync(l)
	two := b.alloc(l, 2*poolPage)
	b.free(two, blocks[1])
}

func TestTheLimitIsKeptAndCanBeChanged(t *testing.T) {
	b := newBench(t, pooled(2))
	l := b.leases(1)[0]
	first := b.alloc(l, 2*poolPage)
	for _, bytes := range []uint64{1, math.MaxUint64 - 256, 1 << 62} {
		_, err := b.Runtime.Allocate(ctx, core.Request{Bytes: bytes, Stream: l.ID()})
		if !errors.Is(err, core.ErrOutOfMemory) {
			t.Errorf("%d bytes: got %v", bytes, err)
		}
	}
	b.Pool.SetLimit(3 * poolPage)
	second := b.alloc(l, 1)
	equal(t, "reserved", b.Pool.Stats().Reserved, 3*poolPage)
	b.free(first, second)
}

func TestTrimGivesBackWhatTheDeviceHasPassed(t *testing.T) {
	b := newBench(t, pooled(0))
	s := b.leases(2)
	kept := b.alloc(s[0], 1000)
	release := b.hold(s[1])
	busy := b.alloc(s[1], 3*poolPage)
	b.launch(s[1], writes(busy))
	b.free(busy)
	must(t, b.Pool.TrimPool(0))
	if got := b.Pool.Stats().Reserved; got < 4*poolPage {
		t.Errorf("%d bytes are held while the device works on four pages", got)
	}
	release()
	b.drain()
	must(t, b.Pool.TrimPool(0))
	equal(t, "reserved", b.Pool.Stats().Reserved, poolPage)
	b.launch(s[0], writes(kept))
	b.free(kept)
	b.drain()
	must(t, b.Pool.TrimPool(0))
	equal(t, "reserved", b.Pool.Stats().Reserved, 0)
	equal(t, "most reserved", b.Pool.Stats().ReservedHigh, 8*poolPage)
}

func TestAPoolHasNoDrift(t *testing.T) {
	b := newBench(t, pooled(0))
	s := b.leases(2)
	blocks := append(b.allocs(s[0], 5, 700), b.allocs(s[1], 3, poolPage)...)
	b.wantDrift("live", 0)
	b.free(blocks[:4]...)
	b.wantDrift("some freed", 0)
	b.free(blocks[4:]...)
	b.drain()
	b.wantDrift("all freed", 0)
}

func TestARangeThatIsLostDrifts(t *testing.T) {
	b := newBench(t, pooled(0))
	l := b.leases(1)[0]
	kept := b.alloc(l, 1000)
	b.wantDrift("before", 0)
	putBack := cuda.LoseAPage(b.Pool)
	b.wantDrift("with a page lost", int64(poolPage))
	putBack()
	b.wantDrift("with the page put back", 0)
	b.free(kept)
}

// leaky is a device whose driver says that it released memory, and keeps it.
type leaky struct {
	driver.Driver
	leaks atomic.Bool
}

func (d *leaky) Unwrap() driver.Driver { return d.Driver }

func (d *leaky) MemRelease(h driver.MemHandle) error {
	if d.leaks.Load() {
		return nil
	}
	return d.Driver.MemRelease(h)
}

// On a device that nobody else uses, all that is not free is the pool's: pages that it gave
// back, and that the device still has, show as memory of others.
func TestPagesThatTheDeviceKeepsShowAsForeign(t *testing.T) {
	d := &leaky{}
	b := newBench(t, pooled(0), dirty, func(c *teststack.Config) {
		wrap := c.Wrap
		c.Wrap = func(under driver.Driver) driver.Driver { d.Driver = wrap(under); return d }
	})
	foreign := func() uint64 {
		free, total, owned, err := b.Pool.DeviceMemory()
		must(t, err)
		return total - free - owned
	}
	s := b.leases(2)
	for _, bytes := range []uint64{1000, poolPage, 5 * poolPage} {
		kept := b.alloc(s[0], bytes)
		b.free(b.alloc(s[1], bytes))
		equal(t, "memory of others while the pool has some", foreign(), 0)
		b.free(kept)
		must(t, b.Pool.TrimPool(poolPage))
		equal(t, "memory of others after a trim", foreign(), 0)
	}
	d.leaks.Store(true)
	must(t, b.Pool.TrimPool(0))
	equal(t, "memory of others when a page was not released", foreign(), poolPage)
}

func TestMemoryOfAStreamThatWasGivenUpIsUsedAgain(t *testing.T) {
	b := newBench(t, pooled(1))
	s := b.leases(1)
	l, handle := b.adopt()
	first, second := b.alloc(l, poolPage/2), b.alloc(l, poolPage/2)
	b.free(first)
	release := b.hold(l)
	b.launch(l, writes(second))
	b.giveUp(l, handle)
	b.free(second) // on the backstop, behind the last event
	third := b.alloc(s[0], poolPage)
	b.launch(s[0], writes(third))
	release()
	b.free(third)
}

// Adopted streams come and go; nothing is kept of those whose memory went to others.
func TestArenasOfStreamsThatAreGoneAreForgotten(t *testing.T) {
	b := newBench(t, pooled(2))
	for range 20 {
		l, handle := b.adopt()
		block := b.alloc(l, 2*poolPage) // all that there is
		b.launch(l, writes(block))
		b.giveUp(l, handle)
		b.free(block)
		b.drain()
	}
	must(t, b.Pool.TrimPool(0))
	must(t, b.Runtime.ReapPending(ctx))
	equal(t, "arenas", cuda.Arenas(b.Pool), 0)
}

// Every call of the driver fails once while pages are mapped, stolen, remapped and given
// back: nothing is lost, and the next try succeeds.
func TestThePoolLosesNothingWhenCallsFail(t *testing.T) {
	for at := uint64(1); ; at++ {
		b := newBench(t, pooled(3))
		s := b.leases(2)
		from := b.faults.Total()
		b.faults.FailCall(at, driver.InvalidValue)
		failed := 0
		again := func(f func() error) {
			if err := f(); err != nil {
				failed++
				must(t, f())
			}
		}
		alloc := func(on *cuda.Lease, bytes uint64) (block core.Block) {
			again(func() (err error) {
				block, err = b.Runtime.Allocate(ctx, core.Request{Bytes: bytes, Stream: on.ID()})
				return err
			})
			return block
		}
		free := func(block core.Block) {
			again(func() error { _, err := b.Runtime.Deallocate(ctx, block.ID); return err })
		}
		first, second, third := alloc(s[0], poolPage), alloc(s[0], poolPage), alloc(s[0], poolPage)
		free(first)
		stolen := alloc(s[1], poolPage)
		free(third)
		free(stolen)
		again(func() error { return b.Runtime.Drain(ctx) })
		two := alloc(s[1], 2*poolPage)
		free(two)
		free(second)
		all := alloc(s[0], 3*poolPage) // of both streams
		free(all)
		again(func() error { return b.Runtime.Drain(ctx) })
		again(func() error { return b.Pool.TrimPool(0) })
		must(t, b.Pool.TrimPool(0))
		equal(t, fmt.Sprintf("reserved after call %d failed", at), b.Pool.Stats().Reserved, 0)
		b.faults.Clear()
		if b.faults.Total() < from+at {
			return
		}
	}
}

// TestPoolHammer has goroutines allocate half a page to two pages under a limit, on
// streams that are slow by turns, and write what they have: the oracle sees who
// comes too early. It goes on until memory was found in every way.
func TestPoolHammer(t *testing.T) {
	hammerPool(t, newBench(t, pooled(12), ticking), func(c core.OwnPoolStats) bool {
		return c.Takeovers.Count > 0 && c.Steals.Count > 0 && c.Remaps.Count > 0
	})
}

// The pool has slabs besides, which it seldom remaps, but trims.
func TestPoolHammerWithSlabs(t *testing.T) {
	b := newBench(t, pooled(12), ticking)
	cuda.UseSlabs(b.Pool, 2, 2)
	hammerPool(t, b, func(c core.OwnPoolStats) bool {
		return c.Takeovers.Count > 0 && c.Steals.Count > 0 && c.Trims.Count > 5
	})
}

func hammerPool(t *testing.T, b *bench, all func(core.OwnPoolStats) bool) {
	t.Helper()
	streams := b.leases(4)
	for round := range uint64(100) {
		var group sync.WaitGroup
		var refused atomic.Int64
		for g := range uint64(5) {
			group.Go(func() {
				h := &poolHammer{bench: b, rng: rand.New(rand.NewPCG(round, g)), streams: streams}
				for range 100 {
					if err := h.step(); errors.Is(err, core.ErrOutOfMemory) {
						refused.Add(1)
					} else if err != nil {
						t.Error(err)
						return
					}
				}
				b.free(h.kept...)
			})
		}
		done, watched := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(watched)
			for {
				select {
				case <-done:
					return
				default:
				}
				if drift, err := b.Pool.Drift(); drift.Known && drift.Bytes != 0 || err != nil {
					t.Errorf("drift %d (%v) while memory changes hands", drift.Bytes, err)
				}
				time.Sleep(time.Millisecond)
			}
		}()
		group.Wait()
		close(done)
		<-watched
		b.drain()
		b.wantDrift("at the end of a round", 0)
		c := b.Pool.Stats().OwnPool
		t.Logf("%+v, %d of 500 refused", c, refused.Load())
		if all(c) || t.Failed() {
			return
		}
	}
	t.Error("some way of finding memory was not met")
}

type poolHammer struct {
	*bench
	rng     *rand.Rand
	streams []*cuda.Lease
	kept    []core.Block
}

func (h *poolHammer) any() *cuda.Lease { return h.streams[h.rng.IntN(len(h.streams))] }

func (h *poolHammer) step() error {
	switch h.rng.IntN(16) {
	case 0:
		return h.Sim.SlowStream(h.any().Handle(), time.Duration(h.rng.IntN(50))*time.Microsecond)
	case 1:
		return h.Pool.TrimPool(h.rng.Uint64N(10) * poolPage)
	case 2:
		return h.Runtime.Drain(ctx)
	}
	home := h.any()
	block, err := h.Runtime.Allocate(ctx, core.Request{Bytes: poolPage / 2 << h.rng.IntN(3), Stream: home.ID()})
	if err != nil {
		return err
	}
	err = errors.Join(h.write(block, home), h.write(block, h.any()))
	if block.Bytes <= poolPage && len(h.kept) < 2 {
		h.kept = append(h.kept, block)
		return err
	}
	if len(h.kept) > 0 && h.rng.IntN(2) == 0 {
		h.kept[0], block = block, h.kept[0]
	}
	_, freeErr := h.Runtime.Deallocate(ctx, block.ID)
	return errors.Join(err, freeErr)
}

func (h *poolHammer) write(block core.Block, on *cuda.Lease) error {
	return h.Runtime.Launch(ctx, on.ID(), declared(writes(block)), func(context.Context) error {
		return core.NotEnqueued(h.Driver.MemsetAsync(block.ID.Ptr+block.Bytes/2, byte(h.rng.Uint32()), 64, on.Handle()))
	})
}

// Small results that outlive the large blocks around them keep little of the pool from the next
// large block, whatever their sizes, on one stream and on several. Other results lie in what they
// leave, and each is served.
func TestSmallBlocksKeepLittleFromLargeOnes(t *testing.T) {
	const pages, columns = 128, 100
	for _, result := range []uint64{256, 8 << 10, poolPage / 32} {
		for _, column := range []uint64{poolPage + 4711, 5 << 20} {
			for _, streams := range []int{1, 3} {
				t.Run(fmt.Sprintf("%d bytes beside %d on %d streams", result, column, streams), func(t *testing.T) {
					b := newBench(t, pooled(pages))
					leases := b.leases(streams)
					var results, live []core.Block
					for i := range columns {
						l := leases[i%streams]
						if (column/poolPage+2)*uint64(len(live)+1) > pages-8 {
							b.free(live...)
							live = nil
						}
						live = append(live, b.alloc(l, column))
						results = append(results, b.alloc(l, result))
					}
					b.free(live...)
					b.drain()
					b.free(b.alloc(leases[0], (pages-8*uint64(streams))*poolPage))
					for range 1000 {
						results = append(results, b.alloc(leases[0], result))
					}
					b.free(results...)
				})
			}
		}
	}
}

// A pool without another page puts small blocks into the pieces beside others, and refuses none
// while there is one.
func TestSmallBlocksFillPiecesOfAFullPool(t *testing.T) {
	const pages = 16
	b := newBench(t, pooled(pages))
	l := b.leases(1)[0]
	var blocks []core.Block
	for range pages {
		blocks = append(blocks, b.alloc(l, poolPage-poolPage/8))
	}
	for range pages * 4 { // of a 32nd of a page
		blocks = append(blocks, b.alloc(l, poolPage/32))
	}
	_, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: l.ID()})
	expect.Error(t, err, core.ErrOutOfMemory)
	b.free(blocks...)
	b.drain()
	b.free(b.alloc(l, pages*poolPage))
}

// A stream waits for its own small blocks that others still use where their pages are wholly free
// then, and for no piece of a page: that would join no large block.
func TestAStreamWaitsForItsOwnPagesOfSmallBlocks(t *testing.T) {
	const pages = 13
	for _, whole := range []bool{true, false} {
		b := newBench(t, pooled(pages))
		s := b.leases(2)
		large := b.alloc(s[0], (pages-1)*poolPage)
		small := b.alloc(s[0], poolPage/32)
		rest := b.alloc(s[0], poolPage-poolPage/32)
		release := b.hold(s[1])
		b.launch(s[1], writes(small, rest))
		b.free(large, small)
		if whole {
			b.free(rest)
		}
		again, err := b.Runtime.Allocate(ctx, core.Request{Bytes: (pages-1)*poolPage + poolPage/32, Stream: s[0].ID()})
		if whole {
			must(t, err)
			b.launch(s[0], writes(again)) // the oracle sees whether it comes after the others
		} else {
			expect.Error(t, err, core.ErrOutOfMemory)
		}
		release()
		if err == nil {
			b.free(again)
		} else {
			b.free(rest)
		}
	}
}
