package history

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// step is a change of what is allocated.
type step uint8

// The steps of a block's life, and a request that came to nothing.
const (
	stepAllocate step = iota + 1
	stepFree
	stepRelease
	stepRefuse
)

// fromBeginning is when a block came that was there before the history began.
const fromBeginning = -1

// replay calls yield for each step of a device's history, in order and in
// pairs that fit: no two blocks overlap, each is allocated, freed and released
// once. at is when, fromBeginning for the blocks that were there, which come first.
// event is what caused the step; nil for those blocks, and for what is only known to be so at
// the end.
func (h *loaded) replay(b *book, yield func(s step, block *memory, at int64, event *oplog.Event)) *replay {
	r := &replay{history: h, book: b, yield: yield, unknown: fromBeginning,
		blocks: map[core.Generation]*replayed{}, waiting: map[core.Generation]listedBlock{}}
	r.begin()
	for i := range h.events {
		if h.events[i].Ordinal == b.ordinal {
			r.apply(&h.events[i])
		}
	}
	r.unknown = h.end
	for _, g := range slices.Sorted(maps.Keys(r.waiting)) {
		r.admit(g, nil)
	}
	for _, g := range slices.Sorted(maps.Keys(r.blocks)) {
		_, listed := b.listed[g]
		if block := r.blocks[g]; block.freed && !listed && !block.freedAt.IsZero() && block.freedAt.Before(b.listedAt) {
			r.release(g, nil)
		}
	}
	return r
}

// replay is the state of a replay.
type replay struct {
	history *loaded
	book    *book
	yield   func(step, *memory, int64, *oplog.Event)
	// unknown is when a step happens that no event causes.
	unknown int64
	blocks  map[core.Generation]*replayed
	extents extents
	// waiting are early blocks whose addresses another one had.
	waiting map[core.Generation]listedBlock
}

// tell yields a step: an allocation happens at the end of its event, all else at its beginning.
func (r *replay) tell(s step, block *memory, e *oplog.Event) {
	at := r.unknown
	switch {
	case e == nil:
	case e.Op == oplog.OpAllocate && s != stepRefuse:
		at = r.history.after(e)
	default:
		at = r.history.begin(e)
	}
	r.yield(s, block, at, e)
}

// replayed is a block of a replay.
type replayed struct {
	memory
	freed bool
	// freedAt is when, zero if no event says so.
	freedAt time.Time
}

// begin allocates the blocks that were there from the beginning. Generations
// are given out in order: memory that an older block is allocated in later was
// not a younger one's yet.
func (r *replay) begin() {
	older := newPlaces(r.book.places)
	for _, g := range slices.Sorted(maps.Keys(r.book.early)) {
		early := r.book.early[g]
		if len(r.extents.over(&early.memory)) > 0 || older.overlapOlder(&early.memory) {
			r.waiting[g] = early
			continue
		}
		r.enter(early, nil)
	}
}

// enter allocates an early block; what is known of it at the end is whether it was freed.
func (r *replay) enter(early listedBlock, e *oplog.Event) {
	r.allocate(early.memory, e)
	if e == nil && early.state == core.Retired {
		r.free(early.id.Generation, nil)
	}
}

// admit allocates a waiting block, unless its addresses are a younger one's by
// now. An older one's free is lost.
func (r *replay) admit(g core.Generation, e *oplog.Event) {
	early, ok := r.waiting[g]
	if !ok {
		return
	}
	delete(r.waiting, g)
	if !slices.ContainsFunc(r.extents.over(&early.memory), func(other core.Generation) bool { return other > g }) {
		r.enter(early, e)
	}
}

func (r *replay) apply(e *oplog.Event) {
	g := e.Block.Generation
	switch {
	case isRefusal(e):
		refused := memoryOfEvent(e)
		r.tell(stepRefuse, &refused, e)
	case !concernsBlock(e):
	case e.Op == oplog.OpAllocate:
		r.allocate(memoryOfEvent(e), e)
	default:
		r.admit(g, e)
		r.free(g, e)
		if e.Op == oplog.OpRelease || !r.book.releases {
			r.release(g, e)
		}
	}
}

// isRefusal reports whether e is a request that its caller did not get for
// want of memory. Such a want of the pool or the device is in the log twice: as the allocation that
// failed, which counts, and as the refusal that the caller was told.
func isRefusal(e *oplog.Event) bool {
	switch e.Op {
	case oplog.OpRefusal:
		return !e.Relieved && !errors.Is(e.Err, core.ErrOutOfMemory)
	case oplog.OpAllocate:
		return errors.Is(e.Err, core.ErrOutOfMemory) || errors.Is(e.Err, core.ErrOutOfBudget) || errors.Is(e.Err, core.ErrClaimExceeded)
	}
	return false
}

func (r *replay) allocate(h memory, e *oplog.Event) {
	r.release(h.id.Generation, e) // two records of one allocation
	for _, g := range r.extents.over(&h) {
		r.release(g, e)
	}
	b := &replayed{memory: h}
	r.blocks[h.id.Generation] = b
	r.extents.insert(&b.memory)
	r.tell(stepAllocate, &b.memory, e)
}

func (r *replay) free(g core.Generation, e *oplog.Event) {
	if b := r.blocks[g]; b != nil && !b.freed {
		if b.freed = true; e != nil {
			b.freedAt = e.Time
		}
		r.tell(stepFree, &b.memory, e)
	}
}

func (r *replay) release(g core.Generation, e *oplog.Event) {
	b := r.blocks[g]
	if b == nil {
		return
	}
	r.free(g, e)
	delete(r.blocks, g)
	r.extents.remove(&b.memory)
	r.tell(stepRelease, &b.memory, e)
}

// left is what is held at the end, by address.
func (r *replay) left() []*replayed {
	return slices.SortedFunc(maps.Values(r.blocks), func(a, b *replayed) int { return cmp.Compare(a.id.Ptr, b.id.Ptr) })
}

// extents are blocks that do not overlap, by address.
type extents []*memory

// first is the index of the first block that ends behind address.
func (x extents) first(address uint64) int {
	return sort.Search(len(x), func(i int) bool { return x[i].end() > address })
}

// over are the blocks that have bytes in common with h.
func (x extents) over(h *memory) (found []core.Generation) {
	for i := x.first(h.id.Ptr); i < len(x) && x[i].id.Ptr < h.end(); i++ {
		found = append(found, x[i].id.Generation)
	}
	return found
}

func (x *extents) insert(h *memory) { *x = slices.Insert(*x, x.first(h.id.Ptr), h) }

// remove takes out h, which was inserted.
func (x *extents) remove(h *memory) {
	i := x.first(h.id.Ptr)
	*x = slices.Delete(*x, i, i+1)
}

// extent is a range of addresses.
type extent struct{ from, to uint64 }

// merge joins extents that touch, and sorts them.
func merge(all []extent) []extent {
	slices.SortFunc(all, func(a, b extent) int { return cmp.Compare(a.from, b.from) })
	var merged []extent
	for _, e := range all {
		if n := len(merged); n > 0 && e.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, e.to)
			continue
		}
		merged = append(merged, e)
	}
	return merged
}

// places are blocks by address, whenever they had it.
type places struct {
	sorted []memory
	// largest is the size of the largest.
	largest uint64
}

func newPlaces(all []memory) places {
	p := places{sorted: slices.SortedFunc(slices.Values(all), func(a, b memory) int { return cmp.Compare(a.id.Ptr, b.id.Ptr) })}
	for i := range all {
		p.largest = max(p.largest, all[i].bytes)
	}
	return p
}

// overlapOlder reports whether a block that is older than h had some of its
// bytes.
func (p places) overlapOlder(h *memory) bool {
	lowest := h.id.Ptr - min(p.largest, h.id.Ptr)
	i := sort.Search(len(p.sorted), func(i int) bool { return p.sorted[i].id.Ptr >= lowest })
	for ; i < len(p.sorted) && p.sorted[i].id.Ptr < h.end(); i++ {
		if a := &p.sorted[i]; a.end() > h.id.Ptr && a.id.Generation < h.id.Generation {
			return true
		}
	}
	return false
}
