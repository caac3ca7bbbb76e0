package cuda_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

const (
	trimAfter = 20 * time.Second
	trimTick  = 10 * time.Millisecond
)

// withIdleTrim runs a test over a pool whose clock stands still while anything runs.
func withIdleTrim(t *testing.T, after time.Duration, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(newBench(t, func(c *teststack.Config) {
			c.Pool, c.Async.ReapInterval = &cuda.PoolConfig{TrimAfter: after}, trimTick
		}))
	})
}

// reserved fails unless the pool and the device say that so many pages are held.
func (b *bench) reserved(when string, pages uint64) {
	b.Helper()
	equal(b, "pages reserved "+when, b.Pool.Stats().Reserved/poolPage, pages)
	equal(b, "pages of the device "+when, b.Sim.Books().Reserved/poolPage, pages)
}

func TestAnIdlePoolGivesItsMemoryBack(t *testing.T) {
	withIdleTrim(t, trimAfter, func(b *bench) {
		s := b.leases(2)
		kept := b.alloc(s[0], 1000)
		blocks := append(b.allocs(s[0], 30, poolPage), b.allocs(s[1], 40, poolPage)...)
		for _, block := range blocks[:40] {
			b.launch(s[1], writes(block))
		}
		b.free(blocks...)
		before := b.Pool.Stats()
		time.Sleep(trimAfter - time.Second)
		b.reserved("before its time", before.Reserved/poolPage)
		time.Sleep(2 * time.Second)
		b.reserved("after it", 1)
		st := b.Pool.Stats()
		equal(t, "cached bytes", st.Cached, st.OwnPool.Fragmented)
		trims := st.OwnPool.Trims
		equal(t, "bytes trimmed", trims.Bytes, before.Reserved-poolPage)
		if most := 16 * trims.Count * poolPage; trims.Bytes > most || trims.Count > trims.Bytes/poolPage {
			t.Errorf("trims of at most 16 pages: %+v", trims)
		}
		b.idlesUntilFreed(kept)
	})
}

func TestAPoolThatIsUsedKeepsWhatItNeeds(t *testing.T) {
	withIdleTrim(t, trimAfter, func(b *bench) {
		l := b.leases(1)[0]
		b.free(b.allocs(l, 60, poolPage)...)
		seconds := 200
		if testing.Short() {
			seconds = 100
		}
		for second := range seconds {
			blocks := b.allocs(l, 20, poolPage)
			b.launch(l, writes(blocks...))
			b.free(blocks...) // nothing lives when the ticker looks
			time.Sleep(time.Second)
			if second == 50 {
				b.reserved("after a peak", 20)
			}
		}
		b.reserved("in use", 20)
		equal(t, "growths", b.Pool.Stats().OwnPool.Growths.Bytes, b.Pool.Stats().ReservedHigh)
	})
}

// idlesUntilFreed holds that a pool with one block that is used calls no driver, and holds nothing after that is freed.
func (b *bench) idlesUntilFreed(kept core.Block) {
	b.Helper()
	calls := b.faults.Total()
	time.Sleep(5 * trimAfter)
	equal(b, "driver calls of an idle pool", b.faults.Total()-calls, 0)
	b.free(kept)
	time.Sleep(2*trimAfter + time.Second)
	b.reserved("when nothing lives", 0)
}

// An idle pool gives slabs back, a few pages each time, but none with a page that is used, whichever streams have the others.
func TestAnIdlePoolGivesSlabsBack(t *testing.T) {
	withIdleTrim(t, trimAfter, func(b *bench) {
		const slab = 16
		s := b.leases(2)
		b.free(b.alloc(s[0], 9*slab*poolPage))
		time.Sleep(time.Second)
		kept := b.alloc(s[1], 1000)
		b.free(b.alloc(s[0], 9*slab*poolPage))
		time.Sleep(3 * trimAfter)
		b.reserved("beside a page", slab)
		st := b.Pool.Stats()
		trims := st.OwnPool.Trims
		equal(t, "bytes trimmed", trims.Bytes, st.ReservedHigh-st.Reserved)
		if most := slab * trims.Count * poolPage; trims.Bytes > most {
			t.Errorf("trims of at most %d pages: %+v", slab, trims)
		}
		b.idlesUntilFreed(kept)
	})
}

func TestAPoolThatIsUsedKeepsItsSlabs(t *testing.T) {
	withIdleTrim(t, trimAfter, func(b *bench) {
		s := b.leases(2)
		slabs := b.alloc(s[0], 9*16*poolPage)
		b.free(append(b.allocs(s[1], 20, poolPage), slabs)...) // those pages are not needed
		time.Sleep(time.Second)
		growths := b.Pool.Stats().OwnPool.Growths.Count
		for range 70 {
			b.free(b.alloc(s[0], 9*16*poolPage))
			time.Sleep(time.Second)
		}
		b.reserved("in use", 9*16)
		equal(t, "growths", b.Pool.Stats().OwnPool.Growths.Count, growths)
	})
}

// Free bytes beside blocks are not pages that nobody needs.
func TestFragmentsMakeNoPageAnUnneededOne(t *testing.T) {
	withIdleTrim(t, trimAfter, func(b *bench) {
		l := b.leases(1)[0]
		halves := b.allocs(l, 40, poolPage/2)
		var kept []core.Block
		for i, block := range halves {
			if i%2 == 0 {
				kept = append(kept, block)
			} else {
				b.free(block)
			}
		}
		big := b.alloc(l, 8*poolPage)
		time.Sleep(time.Second) // the background maps what the pool grows by
		before := b.Pool.Stats().OwnPool.Growths
		for range 100 {
			b.free(big)
			time.Sleep(time.Second)
			big = b.alloc(l, 8*poolPage)
		}
		if after := b.Pool.Stats().OwnPool.Growths; after != before {
			t.Errorf("grown again: %+v, then %+v", before, after)
		}
		b.free(append(kept, big)...)
	})
}

func TestPagesThatTheDeviceHasNotPassedAreNotTrimmed(t *testing.T) {
	withIdleTrim(t, trimAfter, func(b *bench) {
		l := b.leases(1)[0]
		block := b.alloc(l, 8*poolPage)
		release := b.hold(l)
		b.launch(l, writes(block))
		b.free(block)
		time.Sleep(5 * trimAfter)
		b.reserved("behind a launch", 8)
		release()
		time.Sleep(2 * trimAfter)
		b.reserved("after it", 0)
	})
}

func TestIdleTrimmingCanBeTurnedOff(t *testing.T) {
	withIdleTrim(t, -1, func(b *bench) {
		b.free(b.alloc(b.leases(1)[0], 8*poolPage))
		time.Sleep(20 * trimAfter)
		b.reserved("after a long time", 8)
	})
}

// Every call of the driver fails once while an idle pool gives back: later steps do the
// rest, and nothing is lost.
func TestIdleTrimmingLosesNothingWhenCallsFail(t *testing.T) {
	for at := uint64(1); ; at++ {
		failed := false
		withIdleTrim(t, trimAfter, func(b *bench) {
			s := b.leases(2)
			kept := b.alloc(s[0], 1000)
			b.free(append(b.allocs(s[0], 9, poolPage), b.allocs(s[1], 20, poolPage)...)...)
			time.Sleep(trimAfter - time.Second)
			from := b.faults.Total()
			b.faults.FailCall(at, driver.InvalidValue)
			time.Sleep(2 * time.Second)
			failed = b.faults.Total() >= from+at
			b.faults.Clear()
			time.Sleep(4 * trimAfter)
			b.reserved(fmt.Sprintf("after call %d failed", at), 1)
			b.launch(s[0], writes(kept))
			b.wantDrift("at the end", 0)
			b.free(kept)
		})
		if !failed || t.Failed() {
			if at < 30 {
				t.Errorf("trimming made %d calls of the driver", at-1)
			}
			return
		}
	}
}
