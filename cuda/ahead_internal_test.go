package cuda

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/internal/pages"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// aheadBench is a pool whose background work waits until the test runs it.
type aheadBench struct {
	*testing.T
	*PoolResource
	drv     *drivertest.Faults
	gate    *mapGate
	streams *StreamPool
	pending func() error
}

// mapGate is a driver whose next call of a method lasts until open is closed, once the test has named it.
type mapGate struct {
	driver.Driver
	method        atomic.Pointer[drivertest.Method]
	arrived, open chan struct{}
}

func (g *mapGate) Unwrap() driver.Driver { return g.Driver }

func (g *mapGate) at(m drivertest.Method) {
	if at := g.method.Load(); at != nil && *at == m && g.method.CompareAndSwap(at, nil) {
		close(g.arrived)
		<-g.open
	}
}

func (g *mapGate) MemCreate(bytes uint64) (driver.MemHandle, error) {
	g.at(drivertest.MemCreate)
	return g.Driver.MemCreate(bytes)
}

func (g *mapGate) MemMap(ptr, bytes uint64, h driver.MemHandle) error {
	g.at(drivertest.MemMap)
	return g.Driver.MemMap(ptr, bytes, h)
}

func (g *mapGate) MemAccess(ptr, bytes uint64) error {
	g.at(drivertest.MemAccess)
	return g.Driver.MemAccess(ptr, bytes)
}

func newAheadBench(t *testing.T, limit uint64) *aheadBench {
	t.Helper()
	device := must.Get(sim.Open(sim.Config{}))(t)
	b := &aheadBench{T: t, drv: drivertest.NewFaults(device)}
	b.gate = &mapGate{Driver: b.drv, arrived: make(chan struct{}), open: make(chan struct{})}
	b.streams = must.Get(NewStreamPool(b.gate, StreamPoolConfig{Max: 40}))(t)
	b.PoolResource = must.Get(NewPoolResource(b.gate, b.streams, PoolConfig{ReapInterval: -1, Limit: limit}))(t)
	b.arenas.ahead.start = func(f func() error) { b.pending = f }
	t.Cleanup(func() {
		must.Do(t, b.Close(t.Context()), b.streams.Close(t.Context()), device.Close())
	})
	return b
}

func (b *aheadBench) lease() *Lease {
	b.Helper()
	l := must.Get(b.streams.Acquire(b.Context(), "test"))(b)
	b.Cleanup(func() { _ = l.Release() }) // the test may have released it
	return l
}

func (b *aheadBench) allocate(on *Lease, bytes uint64) core.BlockID {
	b.Helper()
	return must.Get(b.Allocate(b.Context(), core.Request{Bytes: bytes, Stream: on.ID()}))(b).ID
}

// holds fails unless the pool holds so many pages, and its books agree.
func (b *aheadBench) holds(when string, pages uint64) {
	b.Helper()
	if got := b.Stats().Reserved / sim.Granule; got != pages {
		b.Errorf("%s %d pages are held, want %d", when, got, pages)
	}
	if drift, err := b.Drift(); drift.Bytes != 0 || !drift.Known || err != nil {
		b.Errorf("%s the drift is %+v, %v", when, drift, err)
	}
}

func (b *aheadBench) free(ids ...core.BlockID) {
	b.Helper()
	for _, id := range ids {
		must.Get(b.Deallocate(b.Context(), id))(b)
	}
}

// A request waits for the pages that it needs, and the background maps what the pool grows by besides.
func TestTheBackgroundMapsWhatTheNextRequestsNeed(t *testing.T) {
	b := newAheadBench(t, 0)
	l := b.lease()
	first := b.allocate(l, 1000)
	b.holds("before the background runs", 1)
	must.Do(t, b.pending())
	b.holds("behind it", growth)
	calls := b.drv.Calls(drivertest.MemCreate)
	second := b.allocate(l, (growth-1)*sim.Granule)
	if made := b.drv.Calls(drivertest.MemCreate) - calls; made != 0 {
		t.Errorf("the next request creates %d pages", made)
	}
	b.free(first, second)
}

// A stream that needs the device's memory first does what the background has not done yet, so that
// no more is held than if the first request had done it.
func TestAnotherStreamUsesWhatIsToBeMappedAhead(t *testing.T) {
	b := newAheadBench(t, 0)
	first := b.allocate(b.lease(), 1000)
	second := b.allocate(b.lease(), (growth-1)*sim.Granule)
	b.holds("for both", growth)
	must.Do(t, b.pending())
	b.holds("behind the background's turn", growth)
	b.free(first, second)
}

// granted is what came of an allocation in the background.
type granted struct {
	core.BlockID
	error
}

// allocateLater allocates on a stream of its own in the background.
func (b *aheadBench) allocateLater(bytes uint64) <-chan granted {
	b.Helper()
	l, got := b.lease(), make(chan granted, 1)
	go func() {
		block, err := b.Allocate(b.Context(), core.Request{Bytes: bytes, Stream: l.ID()})
		got <- granted{block.ID, err}
	}()
	return got
}

// stall allocates so many bytes, and returns in the midst of the growth for that: it lasts until the gate is open.
func (b *aheadBench) stall(m drivertest.Method, bytes uint64) <-chan granted {
	b.Helper()
	b.gate.method.Store(&m)
	got := b.allocateLater(bytes)
	<-b.gate.arrived
	return got
}

// want frees what was allocated.
func (b *aheadBench) want(all ...<-chan granted) {
	b.Helper()
	var ids []core.BlockID
	for _, one := range all {
		got := <-one
		must.Do(b, got.error)
		ids = append(ids, got.BlockID)
	}
	b.free(ids...)
}

// wantMeanwhile is want where it must not wait for the gate.
func (b *aheadBench) wantMeanwhile(one <-chan granted) {
	b.Helper()
	select {
	case got := <-one:
		must.Do(b, got.error)
		b.free(got.BlockID)
	case <-time.After(2 * time.Minute):
		b.Error("a request waits for another stream's growth")
	}
}

// waiting returns when so many requests for a page wait for growth.
func (b *aheadBench) waiting(requests int64) {
	for b.arenas.ahead.waiting.Load() < requests {
		runtime.Gosched()
	}
}

// What is freed while a request waits for the growth of another stream serves it.
func TestWhatIsFreedMeanwhileServesARequestThatWaitsToGrow(t *testing.T) {
	b := newAheadBench(t, 0)
	freed := b.allocate(b.lease(), sim.Granule)
	b.arenas.ahead.left = 0
	grown := b.stall(drivertest.MemCreate, sim.Granule)
	served := b.allocateLater(sim.Granule)
	b.waiting(1)
	b.free(freed)
	b.wantMeanwhile(served)
	close(b.gate.open)
	b.want(grown)
	b.holds("at the end", 2)
}

// Requests that have waited for the growth of another stream do not grow one after the other: the next of them has
// the pool grow for all.
func TestThePoolGrowsAtOnceForAllThatWait(t *testing.T) {
	const requests = 32
	b := newAheadBench(t, 0)
	all := []<-chan granted{b.stall(drivertest.MemCreate, sim.Granule)}
	for range requests {
		all = append(all, b.allocateLater(sim.Granule))
	}
	b.waiting(requests)
	close(b.gate.open)
	b.want(all...)
	if grown := b.Stats().OwnPool.Growths; grown.Count > 4 {
		t.Errorf("the pool has grown %d times, by %d pages in all", grown.Count, grown.Bytes/sim.Granule)
	}
	if waiting := b.arenas.ahead.waiting.Load(); waiting != 0 {
		t.Errorf("%d pages are waited for at the end", waiting)
	}
}

// A stream that finds its page taken by another looks for one more, also in the same arena.
func TestAStreamLooksAgainForAPageThatAnotherTook(t *testing.T) {
	b := newAheadBench(t, 0)
	owner := b.lease()
	b.free(b.allocate(owner, 2*sim.Granule))
	m, late, early := b.arenas, b.lease().stream, b.lease().stream
	late.arena, early.arena = m.open(late), m.open(early)
	m.moving.RLock()
	defer m.moving.RUnlock()
	looks := 0
	_, found, err := m.takeRow(late, &core.Request{Bytes: sim.Granule}, false, true, func(pages.Row) error {
		if looks++; looks > 1 {
			return nil
		}
		_, _, err := m.join(early, &core.Request{Bytes: sim.Granule}, false)
		if _, taken := early.arena.take(sim.Granule); !taken {
			t.Error("the other stream has found no page")
		}
		return err
	})
	if must.Do(t, err); !found || looks != 2 || !late.arena.hasRoom(sim.Granule) {
		t.Errorf("a page was found in %d looks: %v", looks, found)
	}
}

// Streams take each other's pages at the same time, but a request is refused only when no page is on its way.
func TestStreamsTakePagesAtTheSameTime(t *testing.T) {
	b := newAheadBench(t, sim.Granule)
	freed := b.allocate(b.lease(), sim.Granule)
	b.free(freed)
	b.arenas.moving.RLock() // as who is about to give a page to an arena
	l := b.lease()
	taken := b.allocate(l, sim.Granule)
	if steals := b.Stats().OwnPool.Steals.Count; steals != 1 {
		t.Errorf("%d steals", steals)
	}
	refused := b.allocateLater(sim.Granule)
	for b.arenas.moving.TryRLock() { // until it waits for all who move pages
		b.arenas.moving.RUnlock()
		runtime.Gosched()
	}
	select {
	case got := <-refused:
		t.Errorf("an answer while a page was on its way: %v", got.error)
	default:
	}
	b.arenas.moving.RUnlock()
	if got := <-refused; !errors.Is(got.error, core.ErrOutOfMemory) {
		t.Errorf("a request for more than there is: %v", got.error)
	}
	b.free(taken)
	b.holds("at the end", 1)
}

// While the driver maps memory for a large request, another stream grows. Whether the books agree cannot be said then.
func TestNoRequestWaitsForALargeGrowth(t *testing.T) {
	for _, m := range []drivertest.Method{drivertest.MemCreate, drivertest.MemMap, drivertest.MemAccess} {
		b := newAheadBench(t, 0)
		large := b.stall(m, apartPages*sim.Granule)
		b.wantMeanwhile(b.allocateLater(sim.Granule))
		if drift, err := b.Drift(); drift.Known || err != nil {
			t.Errorf("the drift while %s lasts: %+v, %v", m, drift, err)
		}
		must.Do(t, b.ReapPending(t.Context()), b.TrimPool(0))
		close(b.gate.open)
		b.want(large)
		b.holds("at the end", apartPages)
	}
}

// A request is not refused while memory is on its way that may come free: it waits until the large growth has
// ended, which fails here.
func TestARefusalWaitsForLargeGrowths(t *testing.T) {
	b := newAheadBench(t, (apartPages+4)*sim.Granule)
	large := b.stall(drivertest.MemAccess, apartPages*sim.Granule)
	b.drv.FailMethod(drivertest.MemAccess, 1, driver.OutOfMemory)
	other := b.allocateLater(growth * sim.Granule)
	for held := 0; held < 10_000 && len(other) == 0; held++ { // until the request is refused, or waits with growing locked
		if b.arenas.growing.TryLock() {
			b.arenas.unlockGrowing()
			held = 0
		}
		runtime.Gosched()
	}
	if len(other) > 0 {
		t.Error("the request does not wait")
	}
	close(b.gate.open)
	refused := 0
	for _, one := range []<-chan granted{other, large} { // the first to try after the failure has the memory
		if got := <-one; got.error != nil {
			expect.Error(t, got.error, core.ErrOutOfMemory)
			refused++
		} else {
			b.free(got.BlockID)
		}
	}
	if refused > 1 {
		t.Error("both are refused")
	}
	b.want(b.allocateLater((apartPages + 4) * sim.Granule))
}

// What is freed meanwhile serves a request that would be refused but for the large growth.
func TestWhatIsFreedServesARequestThatWaitsForALargeGrowth(t *testing.T) {
	b := newAheadBench(t, (apartPages+1)*sim.Granule)
	freed := b.allocate(b.lease(), sim.Granule)
	large := b.stall(drivertest.MemMap, apartPages*sim.Granule)
	other := b.allocateLater(sim.Granule)
	b.free(freed)
	b.wantMeanwhile(other)
	close(b.gate.open)
	b.want(large)
}

// A large growth that fails at any call of the driver's loses nothing.
func TestALargeGrowthThatFailsLosesNothing(t *testing.T) {
	const large = apartPages + 3
	for method, calls := range map[drivertest.Method]uint64{drivertest.MemCreate: large, drivertest.MemMap: large, drivertest.MemAccess: 1} {
		for k := range calls {
			b := newAheadBench(t, 0)
			l := b.lease()
			b.drv.FailMethod(method, k+1, driver.Unknown)
			_, err := b.Allocate(t.Context(), core.Request{Bytes: large * sim.Granule, Stream: l.ID()})
			if failed, ok := errors.AsType[*core.DriverError](err); !ok || failed.Code != driver.Unknown {
				t.Errorf("call %d of %s: %v", k+1, method, err)
			}
			b.holds("after a failure", 0)
			b.drv.FailMethod(method, k+1, driver.OutOfMemory) // for which the request tries again
			b.free(b.allocate(l, large*sim.Granule))
			b.holds("at the end", large)
		}
	}
}

// Large and small growths, trims, readings and failures at a time: at the end nothing is lost.
func TestLargeAndSmallGrowthsLoseNothing(t *testing.T) {
	const workers, limit = 8, 3*apartPages + 8
	maps := []drivertest.Method{drivertest.MemCreate, drivertest.MemMap, drivertest.MemAccess, drivertest.MemUnmap, drivertest.MemRelease}
	b := newAheadBench(t, limit*sim.Granule)
	b.arenas.store.SlabPages, b.arenas.store.SlabsFrom = 4, apartPages/2
	var group sync.WaitGroup
	b.arenas.ahead.start = func(f func() error) {
		group.Go(func() { _ = b.withMemory("test", f) })
	}
	for w := range workers {
		l := b.lease()
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 33))
			for range 60 {
				pages := 1 + random.Uint64N(3)
				if random.IntN(3) == 0 {
					pages = apartPages + random.Uint64N(4)
				}
				block, err := b.Allocate(b.Context(), core.Request{Bytes: pages * sim.Granule, Stream: l.ID()})
				if err == nil {
					_, err = b.Deallocate(b.Context(), block.ID)
					expect.Success(t, err)
				}
				switch random.IntN(8) {
				case 0:
					_ = b.TrimPool(random.Uint64N(limit) * sim.Granule)
				case 1:
					b.drv.FailMethod(maps[random.IntN(len(maps))], 1+random.Uint64N(20), driver.OutOfMemory)
				case 2:
					if drift, err := b.Drift(); err == nil && drift.Bytes != 0 { // it may meet a failure
						t.Errorf("the drift is %+v, %v", drift, err)
					}
				}
			}
		})
	}
	group.Wait()
	b.drv.Clear()
	must.Do(t, b.ReapPending(t.Context()), b.TrimPool(0))
	b.holds("at the end", 0)
}

func TestATrimEndsWhatIsMappedAhead(t *testing.T) {
	b := newAheadBench(t, 0)
	b.free(b.allocate(b.lease(), 1000))
	must.Do(t, b.TrimPool(0), b.pending())
	b.holds("after a trim", 0)
}

// No page is mapped for an arena that is forgotten: it would not come back.
func TestNothingIsMappedAheadForAnArenaThatIsForgotten(t *testing.T) {
	b := newAheadBench(t, 0)
	handle := must.Get(b.drv.StreamCreate())(t)
	l := must.Get(b.streams.Adopt(handle, "adopted"))(t)
	b.free(b.allocate(l, 1000))
	must.Do(t, l.Release())
	for _, l := range *b.arenas.all.Load() { // as the idle trim would
		must.Do(t, b.arenas.look())
		if r, ok := l.cutCompleted(b.arenas.store, sim.Granule); ok {
			must.Do(t, b.arenas.store.Unmap(r.ptr, r.bytes))
		}
	}
	must.Do(t, b.ReapPending(t.Context()))
	if n := len(*b.arenas.all.Load()); n != 0 {
		t.Fatalf("%d arenas are left", n)
	}
	must.Do(t, b.pending(), b.TrimPool(0))
	b.holds("at the end", 0)
	must.Do(t, b.drv.StreamDestroy(handle))
}

// What the driver refuses to map ahead costs nothing: no page is lost or held twice, and the next
// request has the driver asked again.
func TestADriverThatFailsAheadCostsNoPage(t *testing.T) {
	for _, m := range []drivertest.Method{drivertest.MemCreate, drivertest.MemMap, drivertest.MemAccess} {
		for k := uint64(1); k < growth && (m != drivertest.MemAccess || k == 1); k++ {
			b := newAheadBench(t, 0)
			l := b.lease()
			first := b.allocate(l, 1000)
			b.drv.FailMethod(m, k, driver.OutOfMemory)
			expect.Error(t, b.pending(), core.ErrOutOfMemory)
			b.holds("after a failure of "+string(m), 1)
			second := b.allocate(l, (growth-1)*sim.Granule)
			b.free(first, second)
		}
	}
}

// While a program takes more and more pages, the reaper's ticks map what it will take until the next one, so that no
// request waits for the driver. When it takes no more, or the limit is met, none are mapped.
func TestTheReaperMapsAheadOfLastingDemand(t *testing.T) {
	for _, perTick := range []int{1, 3, growth} {
		b := newAheadBench(t, 0)
		now := time.Now()
		tick := func() {
			now = now.Add(10 * time.Millisecond)
			must.Do(t, b.arenas.tick(now))
		}
		l := b.lease()
		var all []core.BlockID
		take := func() (created uint64) {
			before := b.drv.Calls(drivertest.MemCreate)
			for range perTick {
				all = append(all, b.allocate(l, sim.Granule))
			}
			return b.drv.Calls(drivertest.MemCreate) - before
		}
		for range 3 {
			take()
			tick()
		}
		for i := range 20 {
			if created := take(); created > 0 {
				t.Errorf("%d pages a tick: requests create %d pages in round %d", perTick, created, i)
			}
			tick()
		}
		if free := b.Stats().Cached / sim.Granule; free > growth {
			t.Errorf("%d pages a tick: %d pages are ready", perTick, free)
		}
		held := b.Stats().Reserved / sim.Granule
		now = now.Add(demandLasts)
		for range 3 {
			tick()
			b.free(all[len(all)-1])
			all = all[:len(all)-1]
		}
		b.holds("when demand has ended", held)
		b.SetLimit(held * sim.Granule)
		for range 2 * growth / perTick {
			if _, err := b.Allocate(t.Context(), core.Request{Bytes: sim.Granule, Stream: l.ID()}); err != nil {
				expect.Error(t, err, core.ErrOutOfMemory)
			}
			tick()
		}
		b.holds("at the limit", held)
	}
}

// The limit bounds what is mapped ahead, and no request is refused for it.
func TestTheLimitBoundsWhatIsMappedAhead(t *testing.T) {
	b := newAheadBench(t, 3*sim.Granule)
	l := b.lease()
	first := b.allocate(l, 1000)
	if err := b.pending(); err != nil && !errors.Is(err, core.ErrOutOfMemory) {
		t.Error(err)
	}
	second := b.allocate(l, 2*sim.Granule)
	b.holds("at the limit", 3)
	b.free(first, second)
}

// Demand that lasts makes a pool grow by more, bounded by what it holds; after a pause it grows by
// as little as at first. Requests that wait make it grow by more, too.
func TestAPoolGrowsByDemand(t *testing.T) {
	var a ahead
	now := time.Now()
	for i, c := range []struct {
		later         time.Duration
		held, waiting uint64
		want          uint64
	}{
		{0, 1 << 20, 0, growth},
		{growsSoon / 2, 1 << 20, 0, 2 * growth},
		{growsSoon / 2, 1 << 20, 0, 4 * growth},
		{growsSoon / 2, 5 * growth * growthShare, 0, 5 * growth},
		{growsSoon / 2, growthShare, 0, growth},
		{growsSoon / 2, 1 << 20, 0, 2 * growth},
		{growsSoon, 1 << 20, 0, growth},
		{growsSoon, 0, 3 * growth, 1 + growthWaiting*3*growth},
		{growsSoon, 0, 1, growth},
	} {
		now = now.Add(c.later)
		a.waiting.Store(int64(c.waiting))
		if got := a.growBy(now, 1, c.held); got != c.want {
			t.Errorf("growth %d is by %d pages, want %d", i, got, c.want)
		}
	}
}
