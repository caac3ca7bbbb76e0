package cuda

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/internal/books"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// streamBooks are the books of one physical stream with the blocks in them, which the
// books' lock guards, and what the engine counts there.
type streamBooks struct {
	_      [64]byte // streams share no cache line
	blocks blocktable.Table[block]
	books.Books
	fence.Counts
	_ [64]byte
}

// admit enters a fresh block, with its record if one is kept.
func (b *streamBooks) admit(c *core.Block, record *block, withheld bool) {
	b.Lock()
	short := b.Enter(c, withheld)
	if record != nil {
		record.node.Word.Store(blocktable.Word(c.ID.Generation, 0))
		b.blocks.Insert(c.ID.Generation, &record.node, record)
	}
	b.Unlock()
	b.Raise(short)
}

// releaseAll takes blocks out that are released at now.
func (b *streamBooks) releaseAll(entries []pendingFree, now core.Instant) {
	b.Lock()
	defer b.Unlock()
	for i := range entries {
		record := entries[i].block
		b.blocks.Remove(record.core.ID.Generation)
		b.Leave(&record.core, now.Since(record.freeRequested))
	}
}

// release takes a block out that has no record.
func (b *streamBooks) release(c *core.Block, took time.Duration) {
	b.Lock()
	defer b.Unlock()
	b.Leave(c, took)
}

func (b *streamBooks) addTo(s *core.Stats) {
	b.AddTo(s)
	s.Failures += b.Fails.Load()
	s.Launches += b.Launches.Load()
	s.Aborts += b.Aborts.Load()
	s.CrossStream += b.CrossStream.Load()
	s.WaitsQueued += b.Waits.Load()
	s.WaitsElided += b.Elided.Load()
}

func (b *streamBooks) find(g core.Generation) *block {
	b.Lock()
	defer b.Unlock()
	return b.blocks.Find(g)
}

// list lists the blocks in the books until yield returns false, which it then
// returns.
func (b *streamBooks) list(yield func(core.BlockInfo) bool) bool {
	return b.blocks.List(&b.Books, func(g core.Generation, record *block) bool {
		record.mu.Lock()
		c := record.core
		record.mu.Unlock()
		return c.ID.Generation != g || yield(core.BlockInfo{Block: c})
	})
}

func clamp(n int64) uint64 { return uint64(max(n, 0)) }
