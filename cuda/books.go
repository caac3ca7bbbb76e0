package cuda

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// tally is an amount of memory that is counted from many goroutines.
type tally struct{ bytes, requested, blocks atomic.Int64 }

func (t *tally) add(b *core.Block) {
	t.bytes.Add(int64(b.Bytes))
	t.requested.Add(int64(b.Requested))
	t.blocks.Add(1)
}

// sub takes b out and reports whether a counter went below zero, which is a
// bug in the accounting.
func (t *tally) sub(b *core.Block) (underflow bool) {
	low := min(t.bytes.Add(-int64(b.Bytes)), t.requested.Add(-int64(b.Requested)), t.blocks.Add(-1))
	return low < 0
}

func (t *tally) amount() core.Amount {
	return core.Amount{Bytes: clamp(t.bytes.Load()), Requested: clamp(t.requested.Load()), Blocks: clamp(t.blocks.Load())}
}

func clamp(n int64) uint64 { return uint64(max(n, 0)) }

// books are the counters and the blocks of one physical stream. Each stream
// has its own so that work on different streams shares no cache line; a
// snapshot adds them.
type books struct {
	blocks blockMap

	live, pending                     tally
	allocations, deallocations, fails atomic.Uint64
	launches, aborts, crossStream     atomic.Uint64
	waits, elided                     atomic.Uint64
	underflows                        atomic.Uint64
}

func (b *books) addTo(s *core.Stats) {
	s.Live = s.Live.Add(b.live.amount())
	s.Pending = s.Pending.Add(b.pending.amount())
	s.Allocations += b.allocations.Load()
	s.Deallocations += b.deallocations.Load()
	s.Failures += b.fails.Load()
	s.Launches += b.launches.Load()
	s.Aborts += b.aborts.Load()
	s.CrossStream += b.crossStream.Load()
	s.WaitsQueued += b.waits.Load()
	s.WaitsElided += b.elided.Load()
	s.Underflows += b.underflows.Load()
}

func (b *books) allocated(c *core.Block) {
	b.live.add(c)
	b.allocations.Add(1)
}

// move takes a block from one tally to another: from live to pending when it
// is given back, and back again if that fails.
func (b *books) move(c *core.Block, from, to *tally) {
	to.add(c)
	if from.sub(c) {
		b.underflows.Add(1)
	}
}

func (b *books) released(c *core.Block) {
	if b.pending.sub(c) {
		b.underflows.Add(1)
	}
}

// highWater keeps the exact peaks of all streams together: the one thing that
// every allocation shares, so it is kept on one cache line.
type highWater struct {
	_                        [64]byte
	requested, bytes         atomic.Int64
	peakRequested, peakBytes atomic.Int64
	_                        [64]byte
}

func (h *highWater) add(c *core.Block) {
	raise(&h.peakRequested, h.requested.Add(int64(c.Requested)))
	raise(&h.peakBytes, h.bytes.Add(int64(c.Bytes)))
}

// restore undoes a sub: it makes no new peak.
func (h *highWater) restore(c *core.Block) {
	h.requested.Add(int64(c.Requested))
	h.bytes.Add(int64(c.Bytes))
}

func (h *highWater) sub(c *core.Block) {
	h.requested.Add(-int64(c.Requested))
	h.bytes.Add(-int64(c.Bytes))
}

func raise(peak *atomic.Int64, n int64) {
	for {
		old := peak.Load()
		if old >= n || peak.CompareAndSwap(old, n) {
			return
		}
	}
}

// listeners is a list that is read on every release and written at
// construction.
type listeners struct {
	list atomic.Pointer[[]core.Listener]
}

func (l *listeners) add(listener core.Listener) {
	for {
		old := l.list.Load()
		var next []core.Listener
		if old != nil {
			next = append(next, *old...)
		}
		next = append(next, listener)
		if l.list.CompareAndSwap(old, &next) {
			return
		}
	}
}

func (l *listeners) released(b core.Block) {
	if list := l.list.Load(); list != nil {
		for _, listener := range *list {
			listener.Released(b)
		}
	}
}
