package cuda

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/size"
)

// share bounds what a backend holds of the device: its pool and the mappings of isolated blocks together. Memory comes in
// pages, so the bound is more than what was set in three cases: see bound. An isolated mapping and a growth of the pool are
// each counted before they look whether there is room, so of two at the same time one sees the other.
type share struct {
	page uint64
	set  atomic.Uint64 // in bytes, 0 for no bound
	// largest is the whole pages of the largest request that the pool lacked pages for.
	largest atomic.Uint64
	// beyond is how much more a request of a job with a reservation may take now, which everything
	// else refused: see pieces.
	beyond atomic.Uint64
	// streams is how many streams have a part of the pool; isolated is what isolated blocks take, and those that come.
	streams func() int
	// allStreams is how many streams there are, with a part or without, and live how many live blocks.
	allStreams, live, isolated func() uint64
}

// noBound is the bound where none is set.
const noBound = math.MaxUint64

// bound is how many bytes the backend may hold: whole pages of what was set, and at least
//   - one page for each stream that has a part of the pool, since streams share no page,
//   - a page more if a request needs it that is larger than the whole pages of what was set, but not than that,
//   - one page.
func (h *share) bound() uint64 {
	set := h.set.Load()
	if set == 0 || set > math.MaxInt64 {
		return noBound
	}
	whole, all := set/h.page*h.page, (set+h.page-1)/h.page*h.page
	return max(whole, h.page*uint64(max(h.streams(), 1)), min(all, h.largest.Load()))
}

// most is what the pool and the isolated blocks may hold together.
func (h *share) most() uint64 {
	bound := h.bound()
	return bound + min(h.beyond.Load(), noBound-bound)
}

// forPool is what the pool may hold.
func (h *share) forPool() uint64 {
	most := h.most()
	if most == noBound {
		return noBound
	}
	return most - min(most, h.isolated())
}

// piecePages is how many pages for each stream a pool may hold beyond its share for jobs that have
// a reservation.
const piecePages = 2

// pieces is what a pool may hold beyond its share for a request of a job that has, or had, a
// reservation: nothing for others. The budget admitted the job, and the free memory of the share
// may lie in pieces beside blocks. Those are less than two pages for each block that is live, and
// about half of that at random sizes: so it is a page for each block, up to half of the share, and
// at least piecePages for each stream. No lock of a stream is held.
func (h *share) pieces(req *core.Request) uint64 {
	set := h.set.Load()
	if set == 0 || !req.Account.HasReserved() {
		return 0
	}
	return h.page * max(piecePages*max(h.allStreams(), 1), min(h.live(), set/2/h.page))
}

// needs notes a request that the pool lacks pages for.
func (h *share) needs(pages uint64) {
	for largest := h.largest.Load(); pages > largest && !h.largest.CompareAndSwap(largest, pages); {
		largest = h.largest.Load()
	}
}

// errShare: the share is used up. The device may have more.
var errShare = errors.New("the share of the device is used up")

// SetShare bounds what the resource holds of the device, in bytes: the pool, and what is mapped for
// isolated blocks. Zero, which it begins with, is no bound. Memory comes in pages (2 MiB on an
// H200), so the bound is whole pages of it, and at least a page for each stream that allocates. A
// request that would need more is refused with an error that matches [core.ErrOutOfMemory], after
// the pool has tried all that it holds. For a job that has or had a reservation the pool may hold
// more than the bound: a page for each live block, up to half of the bound, and at least two pages
// for each stream. Where more is held already the reaper gives back what is free, and so do
// ReapPending and Drain. It is safe for concurrent use and does not block. fencepost.Open has it
// follow the budget.
func (r *tracker) SetShare(bytes uint64) {
	r.share.set.Store(bytes)
	r.memory.shareSet()
}

// mayIsolate is whether the share has room for the isolated blocks that are counted already.
func (r *tracker) mayIsolate() error {
	bound := r.share.bound()
	if bound == noBound {
		return nil
	}
	if held := r.memory.held() + r.mapper.Mapped(); held > bound {
		of := size.Figures(held, bound)
		return fmt.Errorf("%w for an isolated block: %w: %s would be held, and %s may be", core.ErrOutOfMemory, errShare,
			of(held), of(bound))
	}
	return nil
}
