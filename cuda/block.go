package cuda

import (
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/internal/books"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
	"github.com/fencepost-gpu/fencepost/internal/fence"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/ring"
)

// block is the record of one allocation. Records are pooled, so code that
// finds one by its generation compares the generation again under the lock.
type block struct {
	node blocktable.Node[block]
	path.Record

	mu sync.Mutex
	// history is the launches announced on the block and its outstanding uses.
	history fence.History
	stream  *stream
	core    core.Block
	// freeRequested is when the free of a retired block was requested, whatever
	// has delayed it since, or shortly after that; 0 while it is not retired in the books.
	freeRequested monotime.Instant
	// entry is the books'.
	entry books.Entry
	// poisoned: an access could not be fenced, so the memory can be neither
	// used nor reused.
	poisoned bool
	// waits is what the free of a retired block waits for before a stream's queue
	// of frees has it: waitsForLaunches or waitsForStream.
	waits freeState
	// mapped is the size of an isolated block's mapping, 0 for one of the pool.
	mapped uint64
	// behind is what the free of a retired block waits for, whose it is that tries again to queue
	// it: waitsForUses.
	behind *fence.Frontier
	// nextKept is the next block in the chain of a stream that keeps both, keptBehind the place
	// behind which the block is free. The lane's lock guards them.
	nextKept   *block
	keptBehind uint64
}

// blockRecords keeps the records of one device's blocks that are gone, for others.
type blockRecords struct {
	*path.Records
	spare sync.Pool
}

func (r *blockRecords) get() *block {
	if b, _ := r.spare.Get().(*block); b != nil && r.Fits(&b.Record) {
		return b
	}
	made := new([path.AtOnce]block)
	r.Equip(func(i int) *path.Record { return &made[i].Record })
	for i := range made {
		made[i].history = fence.NewHistory()
		if i > 0 {
			r.spare.Put(&made[i])
		}
	}
	return &made[0]
}

// fill makes b the record of a fresh allocation. It takes the lock: a goroutine
// that found the record's former block may be looking at it.
func (b *block) fill(s *stream, c *core.Block, req *core.Request, ready *fence.Point) {
	b.mu.Lock()
	b.fillLocked(s, c, req, ready)
	b.mu.Unlock()
}

func (b *block) fillLocked(s *stream, c *core.Block, req *core.Request, ready *fence.Point) {
	b.be(s, c, req, 0)
	b.history.Begin(ready, req.Span)
}

// be makes b the record of a block, but for its history.
func (b *block) be(s *stream, c *core.Block, req *core.Request, mapped uint64) {
	b.core = *c
	b.entry = books.Entry{Account: req.Account, Withheld: req.Withheld}
	b.stream, b.poisoned, b.mapped, b.freeRequested = s, false, mapped, 0
}

// fillMapped is fill for an isolated block, which is ready at once.
func (b *block) fillMapped(s *stream, c *core.Block, req *core.Request, mapped uint64) {
	b.mu.Lock()
	b.be(s, c, req, mapped)
	b.history.Clear()
	b.mu.Unlock()
}

// isIsolated reports whether the block is a mapping of its own and not of the pool.
func (b *block) isIsolated() bool { return b.mapped > 0 }

// isLive reports whether check says nothing; b.mu must be held.
func (b *block) isLive(id core.BlockID) bool {
	return b.core.ID.Generation == id.Generation && !b.poisoned && b.core.State == core.Live && id.Ptr-b.core.ID.Ptr < b.core.Bytes
}

// check says whether id names this block and it is live; b.mu must be held.
func (b *block) check(op string, id core.BlockID, stream core.StreamID) error {
	switch {
	case b.core.ID.Generation != id.Generation:
		return goneError(op, id)
	case b.poisoned:
		return &core.DriverError{Op: op, Name: "FENCEPOST_POISONED", Text: "an earlier use of the block could not be fenced",
			Detail: "block " + id.String() + " can be neither used nor reused until the device is reset"}
	case b.core.State != core.Live:
		return &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: b.core.State, Tag: b.core.Tag}
	case id.Ptr-b.core.ID.Ptr >= b.core.Bytes:
		return &core.StreamMisuseError{Op: op, Block: id, Stream: stream, Reason: "the pointer does not lie inside the block of that generation"}
	}
	return nil
}

// streamBooks are the books of one physical stream with the blocks in them, which the
// books' lock guards, and what the engine counts there.
type streamBooks struct {
	_      [64]byte // streams share no cache line
	blocks blocktable.Table[block]
	// gone are the blocks that left the books last, at most remembers of them.
	gone      ring.Ring[core.Block]
	remembers int
	books.Books
	fence.Counts
	_ [64]byte
}

// rememberedBlocks is how many released blocks a resource remembers, if it does: each stream an
// equal share of them when it comes, and leastRemembered at least.
const (
	rememberedBlocks = 8192
	leastRemembered  = 64
)

// joins makes the books part of a group, with the lock of a lane. They remember so many released
// blocks.
func (b *streamBooks) joins(group *books.Group, lane *path.Lane, remembers int) {
	b.remembers = remembers
	group.Add(&b.Books, lane, func(show func(*core.Block, *books.Entry)) {
		b.blocks.Each(func(record *block) { show(&record.core, &record.entry) })
	})
}

// admit enters a fresh block and raises the peaks of the books' group.
func (b *streamBooks) admit(group *books.Group, record *block) {
	b.Lock()
	b.file(record)
	short := b.Enter(&record.core, &record.entry)
	b.Unlock()
	group.Raise(short)
}

// file makes a record one of the table's; the lock must be held.
func (b *streamBooks) file(record *block) {
	g := record.core.ID.Generation
	record.node.Word.Store(blocktable.Word(g, 0))
	b.blocks.Insert(g, &record.node, record)
}

// free takes a block out that is released as it is freed.
func (b *streamBooks) free(record *block) {
	b.Lock()
	b.leave(record)
	b.Unlock()
}

// leave is free with the lock held.
func (b *streamBooks) leave(record *block) {
	b.remove(record)
	b.Free(&record.core, &record.entry)
}

// remove takes a block out of the table and remembers it in the same step, so that a reader who
// lists the table first and the remembered blocks second misses none. The lock must be held.
func (b *streamBooks) remove(record *block) {
	b.blocks.Remove(record.core.ID.Generation)
	if b.remembers > 0 {
		gone, _ := b.gone.Next(b.remembers)
		*gone = record.core
		gone.State = core.Freed
	}
}

// listGone lists the remembered blocks, oldest first, until yield returns false, which it then
// returns.
func (b *streamBooks) listGone(yield func(core.Block) bool) bool {
	b.Lock()
	gone := b.gone.List()
	b.Unlock()
	for _, c := range gone {
		if !yield(c) {
			return false
		}
	}
	return true
}

// releaseAll takes blocks out that are released at now.
func (b *streamBooks) releaseAll(entries []pendingFree, now monotime.Instant) {
	b.Lock()
	defer b.Unlock()
	for i := range entries {
		record := entries[i].block
		b.remove(record)
		b.Leave(&record.core, now.Since(record.freeRequested))
	}
}

// release takes one block out, so long after the request of its free.
func (b *streamBooks) release(record *block, took time.Duration) {
	b.Lock()
	defer b.Unlock()
	b.remove(record)
	b.Leave(&record.core, took)
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
