// Package books counts what is allocated, retired and released on each stream of a backend. It also
// keeps the peaks of all streams together, without a word that every allocation and free writes. A
// peak is never too low. With few streams (fewStreams) it is exact. With more it is too high by a
// 64th at most, and under load by the slack that "The peaks" describes.
//
// # The counters
//
// Each stream has [Books] of its own, so that work on different streams shares no cache
// line; a snapshot adds them. Blocks pass three tallies that only grow, so that each
// step of a block's life is counted once: what was allocated and not retired is live,
// what was retired and not released is pending.
//
// The books' lock is held for a few instructions at a time, and never over a call of
// the driver's, so that a snapshot does not wait for the device. An owner that keeps the
// blocks themselves changes its table in the same step: it takes the lock around
// [Books.Enter] and [Books.Leave]. A block's lock may be held when the books' is taken,
// not the other way round.
//
// # The peaks
//
// A [Group] is all books of a backend. The protocol is the same for each size; take live bytes.
// claimed is the live bytes plus the slack of all streams. A free adds its bytes to its stream's
// slack and leaves claimed alone. An allocation takes its bytes from that slack, and raises claimed
// only by what the slack lacks. It then claims some more, as slack for later allocations.
//
// While claimed stays below the level, there is no new peak. When claimed exceeds the level:
//   - The level rises to claimed, up to a 64th (peakError) above what was last found live.
//   - Beyond that the group looks: it recalls the slack of every stream, so that claimed is the
//     live bytes, and raises the level to them.
//
// So a look at many streams is paid for by a growth of a 64th of the peak. A look at few streams is
// cheap, so the group looks at each new peak.
//
// A look locks the books of one stream at a time. Bytes that are freed on a stream which it has
// passed, and allocated on one which it has not, are claimed twice. So it looks again while more
// than a 64th is freed meanwhile, mostPasses times at most.
//
// A look leaves the streams without slack. If many goroutines allocate all the time, not all of
// them have a block at that moment, and the next look is soon due. After recallsPerTurn looks that
// waited for a stream at work, the streams keep little slack: together a part in peakError of the
// level (or leastSlack). Slack beyond a stream's part leaves claimed at once, and claimed raises
// the level itself. The level is then too high by the kept slack at most.
//
// # Stretches
//
// The level is the peak of the stretch since the last [Group.Turn], which begins with what is live, and with any slack that
// is free; without turns the stretch is the whole life.
//
// Those stretches follow the clock. Those that a program asks for ([Group.Measure]) have the areas and the tags, too, and
// cost a lock that all share while one is open.
package books

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// Size is a size of memory whose peak is kept.
type Size int

// The sizes: what callers asked for and what that takes of the device, both of live
// blocks, and what all blocks take of the device until their free is completed.
const (
	Requested Size = iota
	Live
	Outstanding
	sizes
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

// Entry is what the books know of one block beside its sizes. It is kept with the block, and the books' lock
// guards it.
type Entry struct {
	// Account, if not nil, follows the block.
	Account *core.Account
	// Withheld: its owner has given it back, and a guard keeps it.
	Withheld bool
	// live: it is counted as live. known: the account was told of it before.
	live, known bool
}

// Books are the counters of one stream, or of several that share them. They belong to
// one [Group], see [Group.Add].
type Books struct {
	// mu is the lock of the stream's lane.
	mu    *path.Lane
	group *Group
	// each calls a function for every block in the books, with the lock held.
	each func(func(*core.Block, *Entry))
	// meter is told of what is live while a stretch is measured, or nil.
	meter                        *meter
	allocated, retired, released tally
	slack                        [sizes]int64
	// keep is how much slack the stream keeps of each size; all of it, or little.
	keep       int64
	underflows uint64
	// reusable is how long the blocks that were released took from the
	// request of their free.
	reusable core.Durations
}

// Lock takes the lock of the books, for Enter and Leave.
func (b *Books) Lock() { b.mu.Lock() }

// Unlock lets the lock go.
func (b *Books) Unlock() { b.mu.Unlock() }

// Shortage is how much of each size the slack of the books did not do for.
type Shortage [sizes]int64

// Cover reports whether nothing is short if a block for req is entered next; the lock must be held
// until then.
func (b *Books) Cover(req *core.Request) bool {
	bytes := int64(req.Bytes)
	return b.cover(Requested, int64(req.Requested)) && b.cover(Live, bytes) && b.cover(Outstanding, bytes)
}

// Enter counts a fresh block. The lock must be held; the caller lets it go and hands
// what is short to [Group.Raise]. What is withheld from its owner is not live.
func (b *Books) Enter(c *core.Block, e *Entry) Shortage {
	b.allocated.add(c)
	short := b.takeLive(c, e)
	short[Outstanding] = b.lack(Outstanding, int64(c.Bytes))
	b.add(Outstanding, -int64(c.Bytes))
	return short
}

// EnterCovered is Enter where [Books.Cover] has said that nothing is short.
func (b *Books) EnterCovered(c *core.Block, e *Entry) {
	b.allocated.add(c)
	b.useSlack(c, e)
	b.add(Outstanding, -int64(c.Bytes))
}

// Retire counts a block that was given back. More retired than allocated is a bug in
// the accounting, as is more released than retired.
func (b *Books) Retire(c *core.Block, e *Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retired.add(c)
	b.giveLive(c, e)
	if b.retired.bytes > b.allocated.bytes {
		b.underflows++
	}
}

// Free is Retire and Leave in one step, for a block whose memory can be used again at once.
// The lock must be held.
func (b *Books) Free(c *core.Block, e *Entry) {
	b.retired.add(c)
	b.released.add(c)
	b.giveLive(c, e)
	b.add(Outstanding, int64(c.Bytes))
	b.reusable.Note(0)
	if b.retired.bytes > b.allocated.bytes {
		b.underflows++
	}
}

// Revive undoes a retire. Others may have been given the memory's share of the
// peak meanwhile, so this may be a new one: what is short is for [Group.Raise].
func (b *Books) Revive(c *core.Block, e *Entry) Shortage {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retired.undo(c)
	return b.takeLive(c, e)
}

// Withhold leaves the live bytes of a block to others' peak.
func (b *Books) Withhold(c *core.Block, e *Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveLive(c, e)
	e.Withheld = true
}

// Leave counts a retired block as released, so long after the request of its free. The
// lock must be held.
func (b *Books) Leave(c *core.Block, took time.Duration) {
	b.released.add(c)
	b.add(Outstanding, int64(c.Bytes))
	b.reusable.Note(took)
	if b.released.bytes > b.retired.bytes {
		b.underflows++
	}
}

// Entered is the blocks that ever were entered, and their bytes.
func (b *Books) Entered() (blocks, bytes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return clamp(b.allocated.blocks), clamp(b.allocated.bytes)
}

// AddTo adds the counters to a snapshot.
func (b *Books) AddTo(s *core.Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Pending = s.Pending.Add(left(b.retired, b.released))
	s.Live = s.Live.Add(left(b.allocated, b.retired))
	s.Deallocations += clamp(b.retired.blocks)
	s.Allocations += clamp(b.allocated.blocks)
	s.AllocatedBytes += clamp(b.allocated.bytes)
	s.Underflows += b.underflows
	s.FreeToReusable.Merge(&b.reusable)
}

// takeLive takes what c needs of live memory from the slack and returns the sizes
// for which there was not as much; b.mu must be held.
func (b *Books) takeLive(c *core.Block, e *Entry) (short Shortage) {
	if !e.Withheld {
		short[Requested] = b.lack(Requested, int64(c.Requested))
		short[Live] = b.lack(Live, int64(c.Bytes))
		b.useSlack(c, e)
	}
	return short
}

// useSlack is takeLive where the slack does.
func (b *Books) useSlack(c *core.Block, e *Entry) {
	if !e.Withheld {
		e.live = true
		b.add(Requested, -int64(c.Requested))
		b.add(Live, -int64(c.Bytes))
		if b.isFollowed(e) {
			b.tell(c, e, 1)
		}
	}
}

// isFollowed reports whether anybody follows a block; hardly ever, so it is inlined.
func (b *Books) isFollowed(e *Entry) bool { return e.Account != nil || b.meter != nil }

// tell tells who follows a block that it is live (1) or no more (-1).
func (b *Books) tell(c *core.Block, e *Entry, sign int64) {
	if e.Account != nil {
		e.Account.Change(sign*int64(c.Requested), sign*int64(c.Bytes), !e.known)
		e.known = true
	}
	if b.meter != nil {
		b.meter.change(c, sign)
	}
}

// lack is n if the slack cannot be made to do for it, which n is added to then, and else 0: n is taken from it next.
func (b *Books) lack(d Size, n int64) (short int64) {
	if !b.cover(d, n) {
		b.slack[d] += n
		return n
	}
	return 0
}

// cover makes the slack do for n, if the group has as much below the level; where little slack is kept it will do.
func (b *Books) cover(d Size, n int64) bool {
	short := n - b.slack[d]
	if short <= 0 || b.keep != allSlack { // then add claims what lacks
		return true
	}
	claimed := b.group.highWater[d].claim(short)
	b.slack[d] += claimed
	return claimed > 0
}

// giveLive undoes takeLive.
func (b *Books) giveLive(c *core.Block, e *Entry) {
	if !e.Withheld {
		e.live = false
		if b.isFollowed(e) {
			b.tell(c, e, -1)
		}
		b.add(Requested, int64(c.Requested))
		b.add(Live, int64(c.Bytes))
	}
}

// add adds to the slack, or takes from it.
func (b *Books) add(d Size, n int64) {
	if b.slack[d] += n; uint64(b.slack[d]) > uint64(b.keep) {
		b.share(d)
	}
}

// share claims what lacks, or lets go of most that is too much. It is not inlined, so that add is.
//
//go:noinline
func (b *Books) share(d Size) {
	m, left := &b.group.highWater[d], int64(0)
	if b.slack[d] > 0 {
		left = b.keep / 2
	}
	m.rise(m.claimed.Add(left - b.slack[d]))
	b.slack[d] = left
}
