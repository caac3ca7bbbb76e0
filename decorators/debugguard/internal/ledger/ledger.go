// Package ledger keeps what the guard knows of every block: a record of each one
// that is not released, and a tombstone of those released last. It works on the
// host alone and calls neither the device nor the layers below.
//
// Records are found by generation, in tables that are read without a lock (package
// blocktable). They are pooled, so whoever found one must check, under its lock, that
// it still belongs to the generation looked for. See [Record] for who owns what.
package ledger

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// AlwaysStacks is the size in bytes from which every block keeps its stacks.
const AlwaysStacks = 1 << 20

// Ledger holds a record of each block known, and of the last ones freed. It is
// divided by the stream of the allocation, so that goroutines on different
// streams stay off each other's cache lines.
type Ledger struct {
	shards [shards]shard
	// gate is the guard's. While the mode is Off, each record that is no
	// tombstone holds it open; otherwise the mode does.
	gate *atomic.Int64
	// Unseen is the newest generation that may have been allocated here while
	// the ledger was off.
	Unseen atomic.Uint64
	// low and high are the bounds of the addresses of all blocks that were ever entered.
	low, high atomic.Uint64
	// tombstoneLimit is how many tombstones there may be in all.
	tombstoneLimit int
	// used is how many shards are in use, limit how many tombstones each of
	// them may keep; sharing is held while the two change.
	sharing sync.Mutex
	used    int
	limit   atomic.Int64
	// stackBytes is the mean number of bytes between blocks that keep stacks.
	stackBytes float64

	// Names numbers the launches' names, Stacks keeps each stack once.
	Names  *Names
	Stacks *Depot
}

// Options say how a ledger is built.
type Options struct {
	// Tombstones is how many freed blocks it remembers.
	Tombstones int
	// StackBytes is the mean number of bytes between blocks that keep stacks.
	StackBytes uint64
}

// New makes a ledger that adds to gate for each live block while the guard
// is off.
func New(gate *atomic.Int64, o Options) *Ledger {
	l := &Ledger{gate: gate, tombstoneLimit: o.Tombstones, stackBytes: float64(o.StackBytes), Names: newNames(), Stacks: newDepot()}
	l.low.Store(math.MaxUint64)
	l.limit.Store(int64(max(1, o.Tombstones))) // a first block may be gone before its shard is shared in
	for i := range l.shards {
		l.shards[i].counted = true
		l.shards[i].untilStack = l.nextStack()
	}
	return l
}

func (l *Ledger) shard(stream core.StreamID) *shard { return &l.shards[uint64(stream)%shards] }

// Enter puts a block that was allocated at that time into the books, and says whether it is one that keeps its
// stacks: each byte has the same chance to choose its block.
func (l *Ledger) Enter(b *core.Block, born monotime.Instant) (rec *Record, due bool) {
	s := l.shard(b.ID.AllocStream)
	s.mu.Lock()
	if s.untilStack -= int64(min(b.Bytes, AlwaysStacks)); s.untilStack < 0 {
		due = true
		s.untilStack = l.nextStack()
	}
	rec = s.empty
	if rec == nil {
		rec = s.makeRecords()
	}
	s.empty, rec.neighbour = rec.neighbour, nil
	rec.fill(b, born)
	l.add(s, rec)
	return rec, due
}

// nextStack draws how many bytes go by before the next block that keeps stacks.
func (l *Ledger) nextStack() int64 { return int64(rand.ExpFloat64() * l.stackBytes) }

// EnterGuarded puts the record of a guarded block into the books.
func (l *Ledger) EnterGuarded(rec *Record) {
	s := l.shard(rec.Stream())
	s.mu.Lock()
	l.add(s, rec)
}

// add makes rec, which is filled, findable and unlocks the shard.
func (l *Ledger) add(s *shard, rec *Record) {
	s.table.Insert(rec.Generation(), &rec.node, rec)
	s.live++
	if s.counted {
		l.gate.Add(1)
	}
	if s.index != nil {
		s.index.enter(rec)
	}
	l.widen(rec.Ptr, rec.Ptr+rec.Bytes)
	fresh := !s.inUse
	s.inUse = true
	s.mu.Unlock()
	if fresh {
		l.share()
	}
}

// share divides the tombstones anew: another shard is in use.
func (l *Ledger) share() {
	l.sharing.Lock()
	defer l.sharing.Unlock()
	l.used++
	l.limit.Store(int64(max(1, l.tombstoneLimit/l.used)))
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		s.tombstones.shrink(int(l.limit.Load()), s.index)
		s.mu.Unlock()
	}
}

// Close makes a tombstone of a block that was released, and empties its record
// for another one if it is pooled. rec is not locked.
func (l *Ledger) Close(rec *Record, g core.Generation) { l.closeIn(l.shard(rec.Stream()), g) }

// CloseBlock is close of a block by its id; it returns its record, nil if it has
// none.
func (l *Ledger) CloseBlock(id core.BlockID) *Record {
	rec := l.closeIn(l.shard(id.AllocStream), id.Generation)
	if rec == nil {
		if rec = l.search(id); rec != nil {
			l.Close(rec, id.Generation)
		}
	}
	return rec
}

// closeIn is close of the record of a generation in a shard, which it returns:
// nil if there is none. Finding and removing it is one walk.
func (l *Ledger) closeIn(s *shard, g core.Generation) *Record {
	if s.table.Unused() {
		return nil
	}
	s.mu.Lock()
	rec := s.table.Remove(g)
	if rec != nil {
		l.remember(s, rec, g)
	}
	s.mu.Unlock()
	return rec
}

// remember is the rest of close, of a record that the table has no more. Nobody waits for
// anything under its lock.
func (l *Ledger) remember(s *shard, rec *Record, g core.Generation) {
	if s.index != nil {
		s.index.remove(rec)
	}
	s.live--
	if s.counted {
		l.gate.Add(-1)
	}
	if rec.Guard != nil {
		rec.LockGuarded()
		l.addTombstone(s, rec, g)
		rec.SetState(core.Freed)
		rec.Unlock()
		return
	}
	rec.empty(g)
	l.addTombstone(s, rec, g)
	rec.extra, rec.writer, rec.used, rec.readUnwritten, rec.Stacked = nil, 0, 0, false, false
	rec.neighbour, s.empty = s.empty, rec
}

// addTombstone remembers a record in its shard.
func (l *Ledger) addTombstone(s *shard, rec *Record, g core.Generation) {
	s.tombstones.add(rec, g, int(l.limit.Load()), s.index)
}

// MayForget reports whether g may have been allocated here and have left no
// record: the ledger was off, or its tombstone is gone.
func (l *Ledger) MayForget(g core.Generation) bool {
	if g == 0 {
		return false
	}
	newest := core.Generation(l.Unseen.Load())
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		newest = max(newest, s.tombstones.forgotten)
		s.mu.Unlock()
	}
	return g <= newest
}

// CountLive makes each record that is no tombstone hold the gate open, or lets
// it go.
func (l *Ledger) CountLive(on bool) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		switch {
		case on && !s.counted:
			l.gate.Add(int64(s.live))
		case !on && s.counted:
			l.gate.Add(-int64(s.live))
		}
		s.counted = on
		s.mu.Unlock()
	}
}

// Size is how many blocks are known that are no tombstones, and how many
// tombstones there are.
func (l *Ledger) Size() (live, tombstones int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		live, tombstones = live+s.live, tombstones+len(s.tombstones.ring)
		s.mu.Unlock()
	}
	return live, tombstones
}

// All calls yield for every block that is not released, with its record and no
// lock held, until yield returns false. Blocks that come or go meanwhile may be
// missed. A record may belong to another block by then: whoever reads it must
// compare the generation, or may see that other block twice.
func (l *Ledger) All(yield func(core.Generation, *Record) bool) {
	for i := range l.shards {
		if s := &l.shards[i]; !s.table.List(&s.mu, yield) {
			return
		}
	}
}

// Heir returns the newest block that was allocated after b and has some of its
// bytes, as far as the ledger remembers. It looks at every record: it is asked
// only about a misuse.
func (l *Ledger) Heir(b core.Block) (heir core.Block, ok bool) {
	look := func(other core.Block) {
		overlaps := other.ID.Ptr-b.ID.Ptr < b.Bytes || b.ID.Ptr-other.ID.Ptr < other.Bytes
		if overlaps && other.ID.Generation > max(b.ID.Generation, heir.ID.Generation) {
			heir, ok = other, true
		}
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, stone := range s.tombstones.ring {
			look(stone.Block())
		}
		s.mu.Unlock()
	}
	for g, rec := range l.All {
		if rec.Lock(g) {
			look(rec.Block())
			rec.Unlock()
		}
	}
	return heir, ok
}
