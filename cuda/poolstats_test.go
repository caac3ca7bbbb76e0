package cuda_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// poolModel knows what a pool must say from the blocks alone: a page with a block on it has
// fragments beside that, one without is wholly free.
type poolModel struct {
	*bench
	rng     *rand.Rand
	streams []*cuda.Lease
	live    []core.Block
	trims   core.PoolMoves
}

// step makes one call.
func (m *poolModel) step() {
	switch m.rng.IntN(12) {
	case 0:
		m.drain()
	case 1:
		m.trim(m.rng.Uint64N(6) * poolPage)
	case 2, 3, 4, 5:
		if len(m.live) > 0 {
			at := m.rng.IntN(len(m.live))
			m.free(m.live[at])
			m.live = slices.Delete(m.live, at, at+1)
		}
	default:
		on := m.streams[m.rng.IntN(len(m.streams))]
		block, err := m.Runtime.Allocate(ctx, core.Request{Bytes: 1 + m.rng.Uint64N(1<<(8+m.rng.UintN(15))), Stream: on.ID()})
		if err == nil {
			m.live = append(m.live, block)
			m.launch(m.streams[m.rng.IntN(len(m.streams))], writes(block))
		} else if !errors.Is(err, core.ErrOutOfMemory) {
			m.Error(err)
		}
	}
}

func (m *poolModel) trim(keep uint64) {
	before := m.Sim.Books().Reserved
	must(m, m.Pool.TrimPool(keep))
	if given := before - m.Sim.Books().Reserved; given > 0 {
		m.trims.Note(given, 0)
	}
}

// check compares what the pool says with the blocks and with the device.
func (m *poolModel) check() {
	m.Helper()
	var requested, taken uint64
	onPage := map[uint64]uint64{}
	for _, b := range m.live {
		requested += b.Bytes
		end := b.ID.Ptr + (b.Bytes+core.DefaultAlign-1)/core.DefaultAlign*core.DefaultAlign
		for at := b.ID.Ptr; at < end; {
			next := min(end, at/poolPage*poolPage+poolPage)
			onPage[at/poolPage] += next - at
			at = next
		}
		taken += end - b.ID.Ptr
	}
	st, held := m.Pool.Stats(), m.Sim.Books().Reserved
	fragmented := uint64(len(onPage))*poolPage - taken
	type said struct{ reserved, used, cached, fragmented uint64 }
	equal(m, "what the pool says", said{st.Reserved, st.PoolUsed, st.Cached, st.OwnPool.Fragmented}, said{held, requested, held - taken, fragmented})
	st.OwnPool.Trims.Time = 0
	equal(m, "trims", st.OwnPool.Trims, m.trims)
}

func TestAPoolSaysWhatItHolds(t *testing.T) {
	met := eachMove(t)
	seeds := uint64(30)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		m := &poolModel{bench: newBench(t, pooled(16)), rng: rand.New(rand.NewPCG(seed, 17))}
		m.streams = m.leases(3)
		for range 150 {
			m.step()
			m.check()
		}
		m.free(m.live...)
		m.live = nil
		m.drain()
		m.check()
		m.trim(0)
		m.check()
		now := m.Pool.Stats().OwnPool
		for _, to := range []struct{ sum, of *core.PoolMoves }{
			{&met.Takeovers, &now.Takeovers}, {&met.Steals, &now.Steals}, {&met.Remaps, &now.Remaps}, {&met.Growths, &now.Growths}} {
			to.sum.Count, to.sum.Bytes, to.sum.Time = to.sum.Count+to.of.Count, to.sum.Bytes+to.of.Bytes, to.sum.Time+to.of.Time
		}
	}
	for name, moves := range map[string]core.PoolMoves{"takeovers": met.Takeovers, "steals": met.Steals, "remaps": met.Remaps, "growths": met.Growths} {
		if moves.Count == 0 || moves.Bytes < moves.Count*poolPage || (moves.Time > 0) == (name == "takeovers") {
			t.Errorf("%s: %+v", name, moves)
		}
	}
}

// eachMove makes a pool move pages in each way, whatever the device's pace is: which of them the
// random programs meet depends on that.
func eachMove(t *testing.T) core.OwnPoolStats {
	t.Helper()
	b := newBench(t, pooled(3))
	s := b.leases(2)
	first, second, third := b.alloc(s[0], poolPage), b.alloc(s[0], poolPage), b.alloc(s[0], poolPage)
	b.free(first)
	b.drain()
	first = b.alloc(s[1], poolPage) // a takeover
	release := b.hold(s[0])
	b.launch(s[0], writes(second))
	b.free(second)
	second = b.alloc(s[1], poolPage) // a steal
	release()
	b.free(first, third)
	b.drain()
	b.free(second, b.alloc(s[0], 2*poolPage)) // a remap: what is free is not in a row
	b.drain()
	return b.Pool.Stats().OwnPool
}

func TestADriversPoolSaysWhatItCachesAndNoMore(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	kept := b.alloc(l, 1000)
	b.free(b.alloc(l, 40<<20))
	b.drain()
	st := b.Async.Stats()
	if st.Reserved == st.PoolUsed || st.Cached != st.Reserved-st.PoolUsed {
		t.Errorf("%d of %d bytes are used, %d cached", st.PoolUsed, st.Reserved, st.Cached)
	}
	equal(t, "the runtime's own pool", st.OwnPool, core.OwnPoolStats{})
	b.free(kept)
}
