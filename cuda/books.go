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

func (t *tally) undo(b *core.Block) {
	t.bytes.Add(-int64(b.Bytes))
	t.requested.Add(-int64(b.Requested))
	t.blocks.Add(-1)
}

// left is what came in here and did not go out there.
func left(in, out *tally) core.Amount {
	gone := out.blocks.Load() // first, so that it is not ahead of what came in
	goneBytes, goneRequested := out.bytes.Load(), out.requested.Load()
	return core.Amount{Bytes: clamp(in.bytes.Load() - goneBytes), Requested: clamp(in.requested.Load() - goneRequested), Blocks: clamp(in.blocks.Load() - gone)}
}

func clamp(n int64) uint64 { return uint64(max(n, 0)) }

// books are the counters and the blocks of one physical stream. Each stream
// has its own so that work on different streams shares no cache line; a
// snapshot adds them. Blocks pass three tallies that only grow, so that each
// step of a block's life is counted once: what was allocated and not retired
// is live, what was retired and not released is pending.
type books struct {
	_ [64]byte

	blocks blockMap

	allocated, retired, released  tally
	fails, orphans                atomic.Uint64
	launches, aborts, crossStream atomic.Uint64
	waits, elided                 atomic.Uint64
	underflows                    atomic.Uint64

	slack [dimensions]atomic.Int64

	_ [64]byte
}

func (b *books) addTo(s *core.Stats) {
	s.Pending = s.Pending.Add(left(&b.retired, &b.released))
	s.Live = s.Live.Add(left(&b.allocated, &b.retired))
	orphans := b.orphans.Load()
	s.Deallocations += clamp(b.retired.blocks.Load()) - orphans
	s.Allocations += clamp(b.allocated.blocks.Load()) - orphans
	s.Failures += b.fails.Load()
	s.Launches += b.launches.Load()
	s.Aborts += b.aborts.Load()
	s.CrossStream += b.crossStream.Load()
	s.WaitsQueued += b.waits.Load()
	s.WaitsElided += b.elided.Load()
	s.Underflows += b.underflows.Load()
}

// retire counts a block that was given back, and release one that left the
// books. Either finding more gone than came is a bug in the accounting.
func (b *books) retire(c *core.Block) {
	b.retired.add(c)
	if b.retired.bytes.Load() > b.allocated.bytes.Load() {
		b.underflows.Add(1)
	}
}

func (b *books) release(c *core.Block) {
	b.released.add(c)
	if b.released.bytes.Load() > b.retired.bytes.Load() {
		b.underflows.Add(1)
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
