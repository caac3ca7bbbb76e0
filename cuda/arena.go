package cuda

import (
	"cmp"
	"math"

	"github.com/fencepost-gpu/fencepost/cuda/internal/fit"
	"github.com/fencepost-gpu/fencepost/cuda/internal/pages"
	"github.com/fencepost-gpu/fencepost/internal/fence"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// arena is what a stream owns of the pool's memory: pages, and which of their bytes are
// free. Only allocations of its stream take from it, only frees of its stream give to it, and
// so a stream uses its own memory again without an event and without a wait.
//
// # Marks
//
// A free range has a mark, a place on the arena's stream ([fence.Stream.Behind] at the
// free): who comes after that place may have the range, and comes then after everything
// that was enqueued on the stream before the free, declared or not. Where ranges merge the newer mark
// holds for both, so that a taker may come after more than the older half demands.
//
// Memory of a block that other streams use is held behind those uses, its frontier, until they are
// known to be completed or the arena's stream comes after them. Only a stream that waits for them may
// have it before.
//
// An arena outlives its stream. When that was given up all its marks lie in front of the
// final point, and its blocks are freed on the backstop, behind that point: the first such
// free changes the marks to places there; the arena still belongs to its stream.
//
// The lock of an arena is its home's lane, whose place among the locks dev/proof.md has. Its holder
// need not hold the stream's lock: other streams cut pages out of an arena that is not theirs.
type arena struct {
	_ [64]byte // arenas share no cache line
	// mu is the lock of home's lane on the host, which guards its books, too.
	mu *path.Lane
	// home is the stream whose allocations take from the arena, stream the one whose
	// places the marks are: the same, and the backstop once home was given up.
	home, stream *stream
	fit          *fit.Fit
	// newest is behind all that is free, or was on its way to become so.
	newest uint64
	// used is the size of its blocks, as they were asked for.
	used uint64
	_    [64]byte

	// surplus is what trimIdle may still give back of the arena. arenas.growing guards it.
	surplus uint64
	// queried is the point by which it will be known that the device has come to the
	// newest mark, nil if no look has asked. arenas.growing guards it.
	queried *fence.Point
}

// run is unused whole pages in a row, on their way from one arena to another.
type run struct {
	ptr, bytes uint64
	from       *arena
	// after is the stream that a user of the run must come after, at mark, to use the run, and
	// behind are the uses on others that they must come after, with references.
	after  *stream
	mark   uint64
	behind []fit.Behind
}

// take takes a block. The arena's stream is locked.
func (l *arena) take(bytes uint64) (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.takeLocked(bytes)
}

func (l *arena) takeLocked(bytes uint64) (uint64, bool) {
	ptr, ok := l.fit.Take(bytes)
	if ok {
		l.used += bytes
	}
	return ptr, ok
}

// give makes a block free behind everything on s, whose lock is held: the arena's stream,
// or the backstop, if the arena's stream was given up. With a frontier it is held.
func (l *arena) give(s *stream, ptr, bytes uint64, behind *fence.Frontier) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if behind == nil {
		return l.giveLocked(s, ptr, bytes)
	}
	l.newest = s.Behind()
	ok := l.fit.Hold(ptr, l.newest, behind)
	if ok {
		behind.Retain()
		l.used -= bytes
	}
	return ok
}

func (l *arena) giveLocked(s *stream, ptr, bytes uint64) bool {
	if l.stream != s {
		l.stream, l.newest = s, 0
		l.fit.Mark(s.Behind()) // s has waited for the final point, behind every mark
	}
	return l.giveBehind(ptr, bytes, s.Behind())
}

// giveBehind makes a block free behind a mark of the arena's stream. The arena is locked.
func (l *arena) giveBehind(ptr, bytes, mark uint64) bool {
	l.newest = max(l.newest, mark)
	_, ok := l.fit.Give(ptr, mark)
	if ok {
		l.used -= bytes
	}
	return ok
}

// covered returns whether what is enqueued on s from now on comes after a mark of the
// arena, without a wait. s and the arena are locked.
func (l *arena) covered(s *stream) func(mark uint64) bool {
	return func(mark uint64) bool { return s.Covers(&l.stream.Stream, mark) }
}

// completed reports whether the device is known to have come to a mark; the arena is locked.
func (l *arena) completed(mark uint64) bool { return l.stream.HasCompleted(mark) }

// cut takes pages out of the arena for another stream: at least so many bytes in a row, whose
// mark is one that may yields true for. may is called with the arena locked.
func (l *arena) cut(bytes uint64, may func(mark uint64) bool) (run, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cutLocked(bytes, may)
}

func (l *arena) cutLocked(bytes uint64, may func(mark uint64) bool) (run, bool) {
	ptr, n, _, ok := l.fit.Cut(bytes, may)
	return run{ptr: ptr, bytes: n, from: l, after: l.stream}, ok
}

// putBack undoes a cut. The arena may have become the backstop's meanwhile, so the newest
// mark is taken, which was behind the run's in either case.
func (l *arena) putBack(r run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(r.behind) > 0 {
		l.fit.AddHeld(r.ptr, r.bytes, l.newest, fence.JoinFrontiers(frontiersOf(r.behind)))
		return
	}
	l.fit.Add(r.ptr, r.bytes, l.newest)
}

func frontiersOf(behind []fit.Behind) func(func(*fence.Frontier) bool) {
	return func(yield func(*fence.Frontier) bool) {
		for _, b := range behind {
			if !yield(b.(*fence.Frontier)) {
				return
			}
		}
	}
}

func releaseAll(behind []fit.Behind) {
	for f := range frontiersOf(behind) {
		f.Release()
	}
}

// held are what the held ranges that touch [from, to) are behind, with references.
func (l *arena) held(from, to uint64) (behind []fit.Behind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.fit.Held {
		if h.Ptr < to && from < h.Ptr+h.Bytes {
			h.Behind.Retain()
			behind = append(behind, h.Behind)
		}
	}
	return behind
}

// settle makes the held ranges free that ready yields true for, behind mark, too. It is called with the
// arena locked.
func (l *arena) settle(mark uint64, ready func(ptr, bytes uint64, behind *fence.Frontier) bool) {
	l.mu.Lock()
	l.newest = max(l.newest, mark)
	gone := l.fit.Settle(mark, func(h fit.Held) bool { return ready(h.Ptr, h.Bytes, h.Behind.(*fence.Frontier)) })
	l.mu.Unlock()
	releaseAll(gone) // the last reference on an event of a stream that is gone has the driver destroy it
}

// settleCompleted settles what the host knows to be completed.
func (l *arena) settleCompleted() {
	l.settle(0, func(_, _ uint64, behind *fence.Frontier) bool { return behind.IsCompleted() })
}

// lookAtHeld asks the device what of the frontiers it has completed, and settles that.
func (l *arena) lookAtHeld() (first error) {
	behind := l.held(0, math.MaxUint64)
	var look fence.Look
	for f := range frontiersOf(behind) {
		_, err := look.IsCompleted(f)
		first = cmp.Or(first, err)
	}
	releaseAll(behind)
	l.settleCompleted()
	return first
}

// hasHeld reports whether ranges are held.
func (l *arena) hasHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fit.Holds()
}

// add makes pages free on the arena, behind mark.
func (l *arena) add(r run, mark uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(r, mark)
}

func (l *arena) addLocked(r run, mark uint64) {
	l.newest = max(l.newest, mark)
	l.fit.Add(r.ptr, r.bytes, mark)
}

// addAndTake is add and take in one step, so that no other stream cuts the run out between.
func (l *arena) addAndTake(r run, mark, bytes uint64) (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(r, mark)
	return l.takeLocked(bytes)
}

// hasRoom reports whether a block of so many bytes could be taken.
func (l *arena) hasRoom(bytes uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fit.Has(bytes)
}

// hasPiece reports whether a small block of so many bytes could lie beside others.
func (l *arena) hasPiece(bytes uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fit.IsSmall(bytes) && l.fit.HasPiece(bytes)
}

// squeeze lets small blocks lie beside others, until the arena gets pages.
func (l *arena) squeeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fit.Squeeze()
}

// singles calls yield for the free pages that the device is known to have come to the mark of, and that are of no slab:
// for all that are in a row. The arena is locked.
func (l *arena) singles(store *pages.Store, yield func(ptr, bytes, mark uint64)) {
	l.fit.Pages(func(ptr, bytes, mark uint64) bool {
		if l.completed(mark) {
			store.Pieces(ptr, bytes, func(ptr, bytes uint64, isSlab bool) {
				if !isSlab {
					yield(ptr, bytes, mark)
				}
			})
		}
		return true
	})
}

// cutCompleted cuts the longest row of single pages that the device is known to have come to the mark of, but
// at most so many bytes, which are whole pages.
func (l *arena) cutCompleted(store *pages.Store, most uint64) (run, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest run
	l.singles(store, func(ptr, bytes, _ uint64) {
		if bytes > longest.bytes {
			longest = run{ptr: ptr, bytes: bytes}
		}
	})
	return l.cutEnd(longest, most)
}

// cutOldest cuts, of the free single pages that the device is known to have come to the mark of, those
// with the oldest mark: at most so many bytes, in pages, and no more than was unneeded
// since the arena's last turn.
func (l *arena) cutOldest(store *pages.Store, most, page uint64) (run, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest run
	l.singles(store, func(ptr, bytes, mark uint64) {
		if oldest.bytes == 0 || mark < oldest.mark {
			oldest = run{ptr: ptr, bytes: bytes, mark: mark}
		}
	})
	return l.cutEnd(oldest, min(most, l.fit.Lowest())/page*page)
}

// cutEnd cuts the last pages of a free run, at most so many bytes. The arena is locked.
func (l *arena) cutEnd(r run, most uint64) (run, bool) {
	n := min(r.bytes, most)
	r = run{ptr: r.ptr + r.bytes - n, bytes: n, from: l, after: l.stream}
	return r, n > 0 && l.fit.CutAt(r.ptr, n, nil)
}

// isSurplus reports whether so many bytes of what is free are surplus, and were unneeded since the arena's last turn.
// arenas.growing is held.
func (l *arena) isSurplus(bytes uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.surplus, l.fit.Lowest()) >= bytes
}

// turn returns how many bytes of pages that are free now were unneeded since the last turn.
func (l *arena) turn() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	unneeded := l.fit.Lowest()
	l.fit.TurnLowest()
	return unneeded - min(unneeded, l.fragmented())
}

// freePages is how many bytes of wholly free pages the arena has.
func (l *arena) freePages() (bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fit.Pages(func(_, n, _ uint64) bool {
		bytes += n
		return true
	})
	return bytes
}

// fragmented is what of the free and held bytes is no whole page; the arena is locked.
func (l *arena) fragmented() uint64 {
	free, _ := l.fit.Bytes()
	l.fit.Rows(func(_, bytes, _ uint64, _ bool) bool {
		free -= bytes
		return true
	})
	return free
}

// addTo adds what the arena has.
func (l *arena) addTo(h *holdings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	free, used := l.fit.Bytes()
	held := uint64(0)
	for r := range l.fit.Held {
		held += r.Bytes
	}
	h.requested += l.used
	h.held += held
	h.pieces += free - held
	h.used += used
	h.fragmented += l.fragmented()
	l.fit.Pages(func(_, bytes, mark uint64) bool {
		h.pieces -= bytes
		if !l.completed(mark) {
			h.behind += bytes
		}
		return true
	})
}

// bytes is all that the arena has.
func (l *arena) bytes() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	free, used := l.fit.Bytes()
	return free + used
}

// isForgettable reports whether the arena has no memory, and will have none: only its own stream's
// allocations bring it some, and that was given up.
func (l *arena) isForgettable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	free, used := l.fit.Bytes()
	return free+used == 0 && l.home.IsGivenUp()
}

// behindAll is a mark behind all that is free, and the stream that it is a place of.
func (l *arena) behindAll() (*stream, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stream, l.newest
}

// look asks the device whether it has come to the arena's newest mark. It records a point
// behind the mark, if there is none, and asks for that. While the stream captures that cannot be
// known, nor when the stream pool is closed. arenas.growing is held. Errors are the driver's.
func (l *arena) look() error {
	if l.hasHeld() {
		if err := l.lookAtHeld(); err != nil {
			return err
		}
	}
	if l.isCompleted() {
		return nil
	}
	s, mark := l.behindAll()
	s.Lock()
	defer s.Unlock()
	if s.EventsClosed() {
		return nil
	}
	for range 2 { // the point of an earlier look may stand in front of the mark
		if l.queried == nil || l.queried.Stream() != &s.Stream {
			l.forgetQueried()
			p, err := s.FinalOrRecord(0)
			if err != nil {
				return unlessCapturing(err)
			}
			l.queried = p
		}
		if done, err := s.QueryCompleted(l.queried); err != nil || !done {
			return err
		}
		l.forgetQueried()
		if s.HasCompleted(mark) {
			return nil
		}
	}
	return nil
}

// isCompleted reports whether the device is known to have come to the newest mark.
func (l *arena) isCompleted() bool {
	s, mark := l.behindAll()
	return s.HasCompleted(mark)
}

func (l *arena) forgetQueried() {
	if l.queried != nil {
		l.queried.Release()
		l.queried = nil
	}
}
