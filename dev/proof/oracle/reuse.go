package oracle

import (
	"math/bits"
	"slices"
)

// reuse is what is known of free memory while the demands are listed.
type reuse struct {
	// live are the cells of blocks that were not freed.
	live Cells
	// free is by cell the free of the block that lay there last, -1 for none.
	free [MaxCells]int32
	// uses are the ends of the launches over blocks whose frees, then, are lazy.
	uses []demand
	// merged has a row for each cell: the frees, and the allocations from another
	// stream's memory, that an allocator of the host's may take for those of this cell too, because
	// it was free in one run with theirs.
	merged rows
	// late are orders that an allocation may have for the sake of its memory, beyond
	// what it must: its waits for another stream's frees are for all that the stream has come to.
	// A free may have those of others with which it was put on the stream.
	late []demand
}

func (u *reuse) reset(width int) {
	u.live, u.late, u.uses = 0, u.late[:0], u.uses[:0]
	for c := range u.free {
		u.free[c] = -1
	}
	u.merged.width = width
	for len(u.merged.words) < MaxCells*width {
		u.merged.words = append(u.merged.words, 0)
	}
	clear(u.merged.words)
}

// demandReuse asks that an allocation comes after the free of every block that lay in
// its memory, and after the uses of that block if the free is lazy: so it comes after all that was put on
// the free's stream before, declared or not. What was so when the allocation had queued no wait is no
// demand, because no wait can be for it.
func (h *History) demandReuse(n *Node, at int32) (broken int) {
	u := &h.reuse
	if u.live&n.Cells != 0 {
		h.blamef("%s has memory of a block that is not freed", h.text(at))
		broken++
	}
	u.live |= n.Cells
	asked := int32(-1)
	for c := range n.Cells.all {
		free := u.free[c]
		if free < 0 || free == asked {
			continue
		}
		asked = free
		if !h.hadBefore(free, at) {
			h.ask(free, at)
		}
		for use := range u.usesOf(free) {
			if !h.hadBefore(use, at) {
				h.ask(use, at)
			}
		}
	}
	u.merge(n.Near, h.movedBy(n, at))
	h.allowLate(n, at)
	return broken
}

// movedBy is an allocation if memory in its run was another stream's, which it may have
// from there; else -1.
func (h *History) movedBy(n *Node, at int32) int32 {
	for c := range n.Near.all {
		if free := h.reuse.free[c]; free >= 0 && h.nodes[free].Stream != n.Stream {
			return at
		}
	}
	return -1
}

// usesOf yields the ends of the launches that the next allocation in the memory of a lazy free must come after.
func (u *reuse) usesOf(free int32) func(func(int32) bool) {
	return func(yield func(int32) bool) {
		for _, d := range u.uses {
			if d.then == free && !yield(d.first) {
				return
			}
		}
	}
}

// noteFree notes whose memory is free from here on.
func (h *History) noteFree(n *Node, at int32, launches []launch) {
	u := &h.reuse
	if n.Lazy {
		for _, l := range launches {
			if !l.node.Aborted && l.end >= 0 && (l.node.Reads|l.node.Writes)>>n.Block&1 != 0 {
				u.uses = append(u.uses, demand{l.end, at})
			}
		}
	}
	u.live &^= n.Cells
	for c := range n.Cells.all {
		u.free[c] = at
	}
	u.merge(n.Near, at)
	if n.Grouped {
		for w := range h.ownWaits(at) {
			u.late = append(u.late, demand{h.nodes[w].From, at})
		}
	}
}

// merge notes that cells are free in one run, as of node at; -1 for none.
func (u *reuse) merge(run Cells, at int32) {
	if run == 0 {
		return
	}
	first := int32(bits.TrailingZeros32(uint32(run)))
	if at >= 0 {
		u.merged.set(first, at)
	}
	for c := range run.all {
		u.merged.unite(first, int32(c))
	}
	for c := range run.all {
		u.merged.unite(int32(c), first)
	}
}

// ownWaits yields the waits that an allocation or a free has queued.
func (h *History) ownWaits(of int32) func(func(int32) bool) {
	return func(yield func(int32) bool) {
		for w := h.previous[of]; w >= 0 && h.nodes[w].Kind == Wait && h.nodes[w].Op == h.nodes[of].Op; w = h.previous[w] {
			if !yield(w) {
				return
			}
		}
	}
}

// hadBefore reports whether an allocation comes after a node without its own waits.
func (h *History) hadBefore(first, alloc int32) bool {
	last := h.previous[alloc]
	for w := range h.ownWaits(alloc) {
		last = h.previous[w]
	}
	return h.reaches(last, first) || h.knewBy(alloc, first)
}

// allowLate notes for which of its waits an allocation has a reason.
func (h *History) allowLate(n *Node, at int32) {
	for w := range h.ownWaits(at) {
		if from := h.nodes[w].From; from >= 0 && h.bringsMerged(n.Cells, from, at) {
			h.reuse.late = append(h.reuse.late, demand{from, at})
		}
	}
}

// knownBefore reports whether the engine can know that an allocation comes after a free
// without its own waits: from the end of a launch behind the free, or from a wait for its memory. The ready point of
// allocations has its number before the frees that it is recorded behind.
func (h *History) knownBefore(free, alloc int32) bool {
	f := &h.nodes[free]
	if f.Stream == h.nodes[alloc].Stream {
		return true
	}
	for at := free + 1; at < alloc; at++ {
		n := &h.nodes[at]
		switch {
		case n.Kind == Wait:
			if n.From >= free && h.nodes[n.From].Stream == f.Stream && h.isLate(at) && h.hadBefore(at, alloc) {
				return true
			}
		case n.Stream == f.Stream && (n.Kind == End || n.Kind == Last):
			if h.hadBefore(at, alloc) {
				return true
			}
		}
	}
	return false
}

// bringsMerged reports whether a node comes after something that cells were
// merged with, and that cannot be known to be before an allocation without its waits.
func (h *History) bringsMerged(cells Cells, from, alloc int32) bool {
	for c := range cells.all {
		for other := range alloc {
			if !h.reuse.merged.has(int32(c), other) && h.reuse.free[c] != other {
				continue
			}
			if h.reaches(from, other) && !h.knownBefore(other, alloc) {
				return true
			}
			if h.isBroughtBack(other, from) {
				return true
			}
			for use := range h.reuse.usesOf(other) {
				if h.reaches(from, use) && !h.hadBefore(use, alloc) {
					return true
				}
			}
		}
	}
	return false
}

// isBroughtBack reports whether a stream has come after the uses elsewhere of a block that it freed only later, by
// other waits, and by a node of its own: the memory counts as free from there on.
func (h *History) isBroughtBack(free, by int32) bool {
	if by <= free || h.nodes[by].Stream != h.nodes[free].Stream {
		return false
	}
	later := false
	for use := range h.reuse.usesOf(free) {
		if !h.before.has(by, use) {
			return false
		}
		later = later || !h.before.has(free, use)
	}
	return later
}

// isLate reports whether a wait is one that an allocation may have.
func (h *History) isLate(wait int32) bool {
	w := &h.nodes[wait]
	return slices.ContainsFunc(h.reuse.late, func(d demand) bool {
		return d.first == w.From && h.nodes[d.then].Op == w.Op && h.nodes[d.then].Kind == Alloc
	})
}
