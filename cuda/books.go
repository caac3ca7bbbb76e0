package cuda

import (
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// tally is an amount of memory.
type tally struct{ bytes, requested, blocks int64 }

func (t *tally) add(b *core.Block) {
	t.bytes += int64(b.Bytes)
	t.requested += int64(b.Requested)
	t.blocks++
}

func (t *tally) undo(b *core.Block) {
	t.bytes -= int64(b.Bytes)
	t.requested -= int64(b.Requested)
	t.blocks--
}

// left is what came in here and did not go out there.
func left(in, out tally) core.Amount {
	return core.Amount{Bytes: clamp(in.bytes - out.bytes), Requested: clamp(in.requested - out.requested), Blocks: clamp(in.blocks - out.blocks)}
}

func clamp(n int64) uint64 { return uint64(max(n, 0)) }

// books are the counters and the blocks of one physical stream. Each stream
// has its own so that work on different streams shares no cache line; a
// snapshot adds them. Blocks pass three tallies that only grow, so that each
// step of a block's life is counted once: what was allocated and not retired
// is live, what was retired and not released is pending.
type books struct {
	_ [64]byte

	// mu is held for a few instructions at a time, and never over a call of
	// the driver's, so that a snapshot does not wait for the device. A
	// block's lock may be held when it is taken, not the other way round.
	mu                           sync.Mutex
	blocks                       blocktable.Table[block]
	allocated, retired, released tally
	slack                        [dimensions]int64
	underflows                   uint64
	// reusable is how long the blocks that were released took from the
	// request of their free.
	reusable core.Durations

	// Counts are the engine's: what the launches of the stream came to.
	fence.Counts

	_ [64]byte
}

// admit enters a fresh block, with its record if one is kept.
func (b *books) admit(c *core.Block, record *block, withheld bool, peaks *highWater, all *streamTable) {
	b.mu.Lock()
	b.allocated.add(c)
	short := b.takeLive(c, withheld)
	short[outstandingBytes] = take(&b.slack[outstandingBytes], int64(c.Bytes))
	if record != nil {
		record.node.Word.Store(blocktable.Word(c.ID.Generation, 0))
		b.blocks.Insert(c.ID.Generation, &record.node, record)
	}
	b.mu.Unlock()
	if short != (sizes{}) {
		peaks.raise(short, b, all)
	}
}

// retire counts a block that was given back, and release one that left the
// books. Either finding more gone than came is a bug in the accounting.
func (b *books) retire(c *core.Block, withheld bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retired.add(c)
	b.giveLive(c, withheld)
	if b.retired.bytes > b.allocated.bytes {
		b.underflows++
	}
}

// revive undoes a retire. Others may have been given the memory's share of the
// peak meanwhile, so this may be a new one. No lock may be held.
func (b *books) revive(c *core.Block, withheld bool, peaks *highWater, all *streamTable) {
	b.mu.Lock()
	b.retired.undo(c)
	short := b.takeLive(c, withheld)
	b.mu.Unlock()
	if short != (sizes{}) {
		peaks.raise(short, b, all)
	}
}

func (b *books) release(c *core.Block, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(c, took)
}

// releaseAll is release, at now, for blocks that have a record in the books.
func (b *books) releaseAll(entries []pending, now core.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range entries {
		record := entries[i].block
		b.blocks.Remove(record.core.ID.Generation)
		b.leave(&record.core, now.Since(record.freeRequested))
	}
}

func (b *books) leave(c *core.Block, took time.Duration) {
	b.released.add(c)
	b.slack[outstandingBytes] += int64(c.Bytes)
	b.reusable.Note(took)
	if b.released.bytes > b.retired.bytes {
		b.underflows++
	}
}

func (b *books) addTo(s *core.Stats) {
	b.mu.Lock()
	s.Pending = s.Pending.Add(left(b.retired, b.released))
	s.Live = s.Live.Add(left(b.allocated, b.retired))
	s.Deallocations += clamp(b.retired.blocks)
	s.Allocations += clamp(b.allocated.blocks)
	s.Underflows += b.underflows
	s.FreeToReusable.Merge(&b.reusable)
	b.mu.Unlock()
	s.Failures += b.Fails.Load()
	s.Launches += b.Launches.Load()
	s.Aborts += b.Aborts.Load()
	s.CrossStream += b.CrossStream.Load()
	s.WaitsQueued += b.Waits.Load()
	s.WaitsElided += b.Elided.Load()
}

func (b *books) find(g core.Generation) *block {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.blocks.Find(g)
}
