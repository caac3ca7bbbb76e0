// Package ledger keeps what the guard knows of every block: a record of each one
// that is not released, and a tombstone of those released last. It works on the
// host alone and calls neither the device nor the layers below.
//
// Records are parts of those that all layers share (package path) and are found by them.
// They are used again, so a reader that found one must check, under its lock, that
// it still belongs to the generation looked for. See [Record] for who owns what. What finds a record by its id, or
// walks over all, takes the locks of lanes: no lock of the ledger may be held.
package ledger

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// AlwaysStacks is the size in bytes from which every block keeps its stacks.
const AlwaysStacks = 1 << 20

// Ledger holds a record of each block known, and of the last ones freed. It is
// divided by the lane of the allocation, so that goroutines on different
// streams stay off each other's cache lines, and what holds a lane's lock needs no other.
type Ledger struct {
	records *path.Records
	part    path.Part[Part]
	// shards are those of the lanes; the list is replaced and never changed.
	shards atomic.Pointer[[]*Shard]
	// indexing is held while the indexes of addresses are built, once.
	indexing sync.Mutex
	indexed  atomic.Bool
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
	// limit is how many tombstones each shard may keep. sharing is held while shards are added, or all of them
	// are told whether they count or that they have an index: then a new one is born with counts and hasIndex.
	sharing          sync.Mutex
	limit            atomic.Int64
	counts, hasIndex bool

	// Names numbers the launches' names, Stacks keeps each stack once.
	Names  *Names
	Stacks *Depot
}

// New makes a ledger with a part of the records that adds to gate for each live block while the guard
// is off, and remembers so many freed blocks.
func New(gate *atomic.Int64, records *path.Records, part path.Part[Part], tombstones int) *Ledger {
	l := &Ledger{records: records, part: part, gate: gate, tombstoneLimit: tombstones, counts: true, Names: newNames(), Stacks: newDepot()}
	l.low.Store(math.MaxUint64)
	l.shards.Store(new([]*Shard))
	return l
}

// all is all shards.
func (l *Ledger) all() []*Shard { return *l.shards.Load() }

// AddLane makes a shard of a lane, whose lock is its from now on. No lock may be held.
func (l *Ledger) AddLane(lane sync.Locker) *Shard {
	l.sharing.Lock()
	defer l.sharing.Unlock()
	old := l.all()
	s := &Shard{mu: lane, number: uint16(len(old)), counted: l.counts}
	if l.hasIndex {
		s.index = &addresses{}
	}
	all := append(slices.Clone(old), s)
	l.shards.Store(&all)
	l.limit.Store(int64(max(1, l.tombstoneLimit/len(all))))
	for _, s := range old {
		s.mu.Lock()
		s.tombstones.shrink(int(l.limit.Load()), s.index)
		s.mu.Unlock()
	}
	return s
}

// Enter puts a block that was allocated at that time into the books, by the record that all layers share, in the
// shard of a lane, which is locked.
func (l *Ledger) Enter(s *Shard, of *path.Record, b *core.Block, born monotime.Instant) *Record {
	rec := &l.part.Of(of).own
	rec.shard = s.number
	rec.fill(b, born)
	l.addLocked(s, rec)
	return rec
}

// EnterGuarded puts the record of a guarded block into the books, in a shard that is not locked.
func (l *Ledger) EnterGuarded(s *Shard, of *path.Record, rec *Record) {
	rec.Guard.part = l.part.Of(of)
	rec.shard = s.number
	s.mu.Lock()
	defer s.mu.Unlock()
	rec.Guard.part.guarded.Store(rec)
	l.addLocked(s, rec)
}

// addLocked counts rec, which can be found by now; s.mu must be held.
func (l *Ledger) addLocked(s *Shard, rec *Record) {
	s.live++
	if s.counted {
		l.gate.Add(1)
	}
	s.enterIndex(rec)
	l.widen(rec.Ptr, rec.Ptr+rec.Bytes)
}

// Close makes a tombstone of a block that was released, and empties its record
// for another one if it is not that of a guarded block. rec is not locked. It reports false if the block was
// closed before.
func (l *Ledger) Close(rec *Record, id core.BlockID) bool {
	if !rec.isOf(id.Generation) { // or its shard may be changing
		return false
	}
	s := l.all()[rec.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.closeLocked(s, rec, id)
}

// Has reports whether a record is that of a block in the shard, which may be nil. No other caller may be closing it.
func (s *Shard) Has(rec *Record) bool { return s != nil && rec.shard == s.number }

// CloseIn is Close in the shard that has the record, whose lane is locked.
func (l *Ledger) CloseIn(s *Shard, rec *Record, id core.BlockID) { l.closeLocked(s, rec, id) }

// Keep closes a block in the shard of a lane, which is locked, and leaves its record in the books
// for the next block there. It reports false, and does nothing, if the block is guarded, has
// stacks, was retired, or is locked.
func (l *Ledger) Keep(s *Shard, of *path.Record, g core.Generation) bool {
	p := l.part.Of(of)
	if p == nil || p.guarded.Load() != nil {
		return false
	}
	rec := &p.own
	live := wordOf(g, core.Live)
	if rec.shard != s.number || rec.Stacked || !rec.word.CompareAndSwap(live, 0) {
		return false
	}
	rec.kept = true
	return true
}

// Remember makes a tombstone of a block that Keep has closed. The lane is locked.
func (l *Ledger) Remember(s *Shard, of *path.Record, g core.Generation) {
	rec := &l.part.Of(of).own
	l.addTombstone(s, rec, g)
	rec.extra, rec.writer, rec.used, rec.readUnwritten = nil, 0, 0, false
}

// Again puts a block into the books at the place of one that Keep has closed, or as Enter does. The
// lane is locked.
func (l *Ledger) Again(s *Shard, of *path.Record, b *core.Block, born monotime.Instant) {
	rec := &l.part.Of(of).own
	if !rec.kept {
		l.Enter(s, of, b, born)
		return
	}
	rec.kept, rec.allocStream, rec.born = false, b.ID.AllocStream, born
	rec.word.Store(wordOf(b.ID.Generation, core.Live))
}

// LetGo takes a record that Keep has left in the books out of them. The lane is locked.
func (l *Ledger) LetGo(of *path.Record) {
	if p := l.part.Of(of); p != nil && p.own.kept {
		p.own.kept = false
		l.leave(l.all()[p.own.shard], &p.own)
	}
}

func (l *Ledger) closeLocked(s *Shard, rec *Record, id core.BlockID) bool {
	if !rec.isOf(id.Generation) || rec.Guard != nil && !rec.Guard.part.guarded.CompareAndSwap(rec, nil) {
		return false
	}
	l.remember(s, rec, id.Generation)
	return true
}

// CloseBlock is Close of a block by the record that all layers share; it returns its record, nil if it has
// none.
func (l *Ledger) CloseBlock(of *path.Record, id core.BlockID) *Record {
	if rec := l.part.Of(of).of(id.Generation); rec != nil && l.Close(rec, id) {
		return rec
	}
	return nil
}

// remember is the rest of Close. No caller waits for
// anything under a record's lock.
func (l *Ledger) remember(s *Shard, rec *Record, g core.Generation) {
	l.leave(s, rec)
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
}

// leave counts a record as live no more, and takes it out of the index. The lane is locked.
func (l *Ledger) leave(s *Shard, rec *Record) {
	if rec.indexed {
		s.index.remove(rec)
		rec.indexed = false
	}
	s.live--
	if s.counted {
		l.gate.Add(-1)
	}
}

// addTombstone remembers a record in its shard.
func (l *Ledger) addTombstone(s *Shard, rec *Record, g core.Generation) {
	s.tombstones.add(rec, g, int(l.limit.Load()), s.index)
}

// MayForget reports whether g may have been allocated here and have left no
// record: the ledger was off, or its tombstone is gone.
func (l *Ledger) MayForget(g core.Generation) bool {
	if g == 0 {
		return false
	}
	newest := core.Generation(l.Unseen.Load())
	for _, s := range l.all() {
		s.mu.Lock()
		newest = max(newest, s.tombstones.forgotten)
		s.mu.Unlock()
	}
	return g <= newest
}

// CountLive makes each record that is no tombstone hold the gate open, or lets
// it go.
func (l *Ledger) CountLive(on bool) {
	l.sharing.Lock() // a lane that is added now would be missed, or count as before
	defer l.sharing.Unlock()
	l.counts = on
	for _, s := range l.all() {
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
	for _, s := range l.all() {
		s.mu.Lock()
		live, tombstones = live+s.live, tombstones+len(s.tombstones.ring)
		s.mu.Unlock()
	}
	return live, tombstones
}

// All calls yield for every block that is not released, with its record and no
// lock held, until yield returns false. Blocks that come or go meanwhile may be
// missed. A record may belong to another block by then: a reader must
// compare the generation, or may see that other block twice.
func (l *Ledger) All(yield func(core.Generation, *Record) bool) {
	l.records.Each(func(g core.Generation, of *path.Record) bool {
		rec := l.part.Of(of).of(g)
		return rec == nil || yield(g, rec)
	})
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
	for _, s := range l.all() {
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
