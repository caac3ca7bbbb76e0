package cuda

import (
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A pool grows in slabs of so many pages, by eight of them and more.
const slabPages = 16

// slabs has the pool grow by so many slabs, and allocates a block of each, in the order of their addresses.
func (b *aheadBench) slabs(on *Lease, n int) (ids []core.BlockID) {
	b.Helper()
	before := b.drv.Calls(drivertest.MemCreate)
	b.free(b.allocate(on, uint64(n)*slabPages*sim.Granule))
	if created := b.drv.Calls(drivertest.MemCreate) - before; created != uint64(n) {
		b.Fatalf("growth by %d slabs creates %d handles", n, created)
	}
	for range n {
		ids = append(ids, b.allocate(on, slabPages*sim.Granule))
	}
	must.Do(b, b.ReapPending(b.Context()))
	return ids
}

// passed frees blocks, and has the pool see that the device has passed them.
func (b *aheadBench) passed(ids ...core.BlockID) {
	b.Helper()
	b.free(ids...)
	must.Do(b, b.ReapPending(b.Context()))
}

// Other streams take pages of a slab without the driver. It goes back when all its pages are free, whoever has them.
func TestPagesOfASlabChangeHandsOneByOne(t *testing.T) {
	b := newAheadBench(t, 0)
	slabs := b.slabs(b.lease(), 8)
	b.passed(slabs[:7]...)
	var taken []core.BlockID
	for range 5 {
		taken = append(taken, b.allocate(b.lease(), sim.Granule))
	}
	if moves := b.Stats().OwnPool; moves.Takeovers.Count != 5 || moves.Steals.Count+moves.Remaps.Count > 0 || moves.Growths.Count != 1 {
		t.Errorf("pages were found by %+v", moves)
	}
	must.Do(t, b.TrimPool(0))
	b.holds("trimmed beside live blocks", 2*slabPages)
	b.passed(taken[:4]...)
	must.Do(t, b.TrimPool(0))
	b.holds("trimmed beside one page", 2*slabPages)
	b.passed(taken[4], slabs[7])
	must.Do(t, b.TrimPool(3*slabPages/2*sim.Granule))
	b.holds("trimmed to a slab and a half", slabPages)
	must.Do(t, b.TrimPool(1))
	b.holds("trimmed to less than a slab", 0)
}

// A closing pool gives a slab back that several streams have pages of.
func TestASlabOfManyStreamsIsClosed(t *testing.T) {
	b := newAheadBench(t, 0)
	b.passed(b.slabs(b.lease(), 8)...)
	for range 20 {
		b.passed(b.allocate(b.lease(), sim.Granule))
	}
	must.Do(t, b.Close(t.Context()))
	if created, released, given := b.drv.Calls(drivertest.MemCreate), b.drv.Calls(drivertest.MemRelease), b.drv.Calls(drivertest.MemUnreserve); released != created || given != 1 {
		t.Errorf("of %d handles %d are released, and the addresses %d times", created, released, given)
	}
}

// At its limit the pool has free slabs make room for pages, and for no more than the request lacks.
func TestAFreeSlabMakesRoomAtTheLimit(t *testing.T) {
	for _, c := range []struct {
		free         []int
		bytes, holds uint64
		refused, own bool // own: the stream that has freed them asks
	}{
		{free: []int{1, 3, 5}, bytes: slabPages + 4, holds: 6*slabPages + slabPages + 4},
		{free: []int{1, 3, 5}, bytes: 3 * slabPages, holds: 8 * slabPages},
		{free: []int{1, 7}, bytes: slabPages + 1, holds: 7*slabPages + 1}, // a page behind the last slab is missing
		{free: []int{7}, bytes: slabPages + 1, holds: 8 * slabPages, refused: true, own: true},
		{free: []int{1, 3}, bytes: 2*slabPages + 1, holds: 6 * slabPages, refused: true},
	} {
		b := newAheadBench(t, 8*slabPages*sim.Granule)
		b.arenas.ahead.start = func(func() error) {}
		l := b.lease()
		slabs := b.slabs(l, 8)
		if !c.own {
			l = b.lease()
		}
		for _, i := range c.free {
			b.passed(slabs[i])
		}
		block, err := b.Allocate(t.Context(), core.Request{Bytes: c.bytes * sim.Granule, Stream: l.ID()})
		if c.refused {
			expect.Error(t, err, core.ErrOutOfMemory)
		} else {
			must.Do(t, err)
			b.free(block.ID)
		}
		b.holds("beside the live blocks", c.holds)
		for i, id := range slabs {
			live := true
			for _, free := range c.free {
				live = live && i != free
			}
			if live {
				b.free(id)
			}
		}
		must.Do(t, b.ReapPending(t.Context()), b.TrimPool(0))
		b.holds("at the end", 0)
	}
}

// Whichever call fails while slabs are mapped, moved or given back: nothing is lost.
func TestSlabsAreNotLostWhenCallsFail(t *testing.T) {
	for _, code := range []int{driver.OutOfMemory, driver.Unknown} {
		for at, failed := uint64(1), true; failed && !t.Failed(); at++ {
			t.Run(fmt.Sprintf("call %d fails with %d", at, code), func(t *testing.T) { failed = slabsLoseNothing(t, at, code) })
			if !failed && at < 60 {
				t.Errorf("only %d calls", at)
			}
		}
	}
}

// slabsLoseNothing reports whether there were so many calls.
func slabsLoseNothing(t *testing.T, at uint64, code int) (failed bool) {
	b := newAheadBench(t, 24*sim.Granule)
	b.arenas.store.SlabPages, b.arenas.store.SlabsFrom = 2, 10
	one, other := b.lease(), b.lease()
	from := b.drv.Total()
	b.drv.FailCall(at, code)
	for _, c := range []struct {
		on    *Lease
		pages uint64
	}{{one, 16}, {other, 24}, {one, 22}} {
		block, err := b.Allocate(t.Context(), core.Request{Bytes: c.pages * sim.Granule, Stream: c.on.ID()})
		if err == nil {
			_, err = b.Deallocate(t.Context(), block.ID)
			expect.Success(t, err)
		}
		_ = b.ReapPending(t.Context())
		if c.on == other {
			_ = b.TrimPool(3 * sim.Granule)
		}
	}
	failed = b.drv.Total() >= from+at
	b.drv.Clear()
	must.Do(t, b.ReapPending(t.Context()))
	b.passed(b.allocate(other, 24*sim.Granule))
	must.Do(t, b.TrimPool(0))
	b.holds("at the end", 0)
	return failed
}
