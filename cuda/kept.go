package cuda

import (
	"math"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/internal/books"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// keptBlocks are the blocks that a stream keeps for its next allocations of the same size and tag.
// They are freed: the books have them no more. The arena has them as if they were live, until the
// lane is settled. The lane's lock guards them. See package path.
type keptBlocks struct {
	chains [keptChains]*block // by size, the newest first
	n      int
	bytes  uint64
}

const (
	keptChains = 16
	// mostKept is how many blocks a stream keeps, and mostKeptBytes of how many bytes in all. A
	// quarter of those is the largest block that is kept.
	mostKept      = 32
	mostKeptBytes = 4 << 20
)

func keptChain(bytes uint64) uint64 { return bytes / core.DefaultAlign * 0x9e3779b97f4a7c15 >> 60 }

// find is the newest kept block of that size and tag, and what leads to it in its chain; nil if
// there is none.
func (k *keptBlocks) find(req *core.Request) (b *block, from **block) {
	from = &k.chains[keptChain(req.Bytes)]
	for b = *from; b != nil; b = *from {
		if b.core.Bytes == req.Bytes && b.core.Requested == req.Requested && b.core.Tag == req.Tag {
			return b, from
		}
		from = &b.nextKept
	}
	return nil, nil
}

// keeping is the backend's share of ordinary operations, over the runtime's own pool.
type keeping struct{ *tracker }

var _ path.Keeping = keeping{}

// Expects is without a bound.
func (r keeping) Expects(l *path.Lane) int64 {
	if s, _ := l.Part(path.BackendPart).(*stream); s == nil || r.own == nil {
		return 0
	}
	return math.MaxInt64
}

// lock is the lane's stream, locked, if it is neither busy nor has something to wait for.
func (keeping) lock(l *path.Lane) *stream {
	s, _ := l.Part(path.BackendPart).(*stream)
	if s == nil || !s.TryLock() {
		return nil
	}
	return s.ifQuiet()
}

// Revive makes a kept block the one of an allocation.
func (r keeping) Revive(step *path.Step) bool {
	s := r.lock(step.Lane)
	if s == nil {
		return false
	}
	served := r.revive(s, step)
	s.Unlock()
	return served
}

func (r keeping) revive(s *stream, step *path.Step) bool {
	b, from := s.kept.find(&step.Request)
	if b == nil || !s.books.Cover(&step.Request) || r.inMemory.Load() == memoryGone || s.Open() > 0 ||
		!r.streams.table.records.Fits(&b.Record) {
		return false
	}
	ready := s.PointAtHand(step.Request.Stream)
	if ready == nil {
		return false
	}
	if !b.mu.TryLock() { // another goroutine has found the former block, and looks at it
		ready.MayBeRecorded()
		ready.Release()
		return false
	}
	k := &s.kept
	*from, b.nextKept = b.nextKept, nil
	k.n--
	k.bytes -= b.core.Bytes
	s.calls.allocated++
	b.core.ID.Generation, b.core.ID.AllocStream, b.core.State = core.NextGeneration(), step.Request.Stream, core.Live
	b.entry = books.Entry{Account: step.Request.Account}
	b.history.Begin(ready, step.Request.Span)
	step.Block, step.Record = b.core, &b.Record
	b.mu.Unlock()
	s.books.file(b)
	s.books.EnterCovered(&b.core, &b.entry)
	step.Then(r.begin(s, &step.Request, ready))
	return true
}

// MayKeep reports whether only the stream has used the block, and has room for it. Then both are
// locked.
func (r keeping) MayKeep(step *path.Step) bool {
	b, _ := step.Engine.(*block)
	if b == nil || step.ID.Ordinal != r.streams.table.ordinal || b.core.Bytes > mostKeptBytes/4 {
		return false
	}
	s := r.lock(step.Lane)
	if s == nil {
		return false
	}
	if s.arena == nil || s.arena.stream != s || !b.mu.TryLock() {
		s.Unlock()
		return false
	}
	if r.isAlone(s, b, &step.ID) {
		return true
	}
	b.mu.Unlock()
	s.Unlock()
	return false
}

// Leave unlocks what MayKeep has locked.
func (r keeping) Leave(step *path.Step) {
	b := step.Engine.(*block)
	b.mu.Unlock()
	b.stream.Unlock()
}

// Keep takes the block out of the table, and keeps it.
func (r keeping) Keep(step *path.Step) {
	b := step.Engine.(*block)
	s := b.stream
	s.retire(b, &step.Block)
	b.keptBehind = s.Behind()
	if r.own.oracle == nil {
		r.keep(s, b)
	} else {
		from := s.arena
		step.Then(func(core.Block) { r.keepTold(s, from, b) })
	}
	if r.listeners.OffPath() {
		step.Then(r.listeners.ReleasedAtOnce)
	}
	s.Unlock()
}

// keep keeps a block that is freed. The stream and the lane are locked.
func (r keeping) keep(s *stream, b *block) {
	s.calls.noteFreed(b.core.Bytes)
	k := &s.kept
	if k.n == mostKept || k.bytes+b.core.Bytes > mostKeptBytes {
		r.Settle(&s.host)
	}
	at := &k.chains[keptChain(b.core.Bytes)]
	b.nextKept, *at = *at, b
	k.n++
	k.bytes += b.core.Bytes
	s.host.Owe()
}

// keepTold tells the oracle of a free before the stream keeps the block: another goroutine may be
// given it next. The stream may have been given up since, and with it the arena: then the block is
// no more the stream's to keep.
func (r keeping) keepTold(s *stream, from *arena, b *block) {
	r.own.oracle.BlockEnds(b.core.ID.Ptr, s.Handle())
	s.Lock()
	s.host.LockToKeep()
	b.keptBehind = s.Behind() // a point that was recorded since the free does not cover what the oracle was told
	if from.stream == s {
		r.keep(s, b)
		s.host.Unlock()
		s.Unlock()
		return
	}
	ptr, bytes := b.core.ID.Ptr, b.core.Bytes
	s.host.LetGo(&b.Record)
	s.keepRecord(&r.streams.table.records, b)
	s.host.Unlock()
	s.Unlock()
	r.own.giveEnded(from, ptr, bytes)
}

// Settle gives the kept blocks back to the arena.
func (r keeping) Settle(l *path.Lane) {
	s := l.Part(path.BackendPart).(*stream)
	k := &s.kept
	for i := range k.chains {
		for b := k.chains[i]; b != nil; b = k.chains[i] {
			k.chains[i], b.nextKept = b.nextKept, nil
			l.LetGo(&b.Record)
			s.arena.giveBehind(b.core.ID.Ptr, b.core.Bytes, b.keptBehind)
			s.keepRecord(&r.streams.table.records, b)
		}
	}
	k.n, k.bytes = 0, 0
}
