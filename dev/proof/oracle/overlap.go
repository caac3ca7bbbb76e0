package oracle

import "slices"

// Where calls overlap, what came between the waits of a call and the launch
// that it is for must not be held against it:
//
//   - The launch's Begin is put when the call has returned. Others may have
//     queued waits or work on the stream since. So a wait is needed if it was
//     when it was queued, with the other waits of the same call and no more;
//     and what comes behind it may come after all that the launch demands and
//     the wait brings.
//   - What the host finds out in one call the others know when that has
//     returned. So a wait is needed if it is without what the host knew only
//     by calls that had not returned when the wait's own call began.
//   - An event that was recorded while an allocation was being made on its stream
//     may lie on either side of it, which cannot be known. So a wait is needed if
//     it is without such an event's standing for the allocation.
//   - What others put on the stream of an allocation before that has returned may
//     lie before its event. So what comes after the allocation may come after that.
//
// An order that must be is never excused.

// owner is the node that a wait was queued for: the next on the stream of its
// operation that is no wait. -1 if there is none.
func (h *History) owner(wait int32) int32 {
	w := &h.nodes[wait]
	for i := int(wait) + 1; i < len(h.nodes); i++ {
		if n := &h.nodes[i]; n.Stream == w.Stream && n.Op == w.Op && n.Kind != Wait {
			return int32(i)
		}
	}
	return -1
}

// neededWhenQueued reports whether what a wait was queued for loses an order
// that the wait brings, if it is taken to lie where the wait does.
func (h *History) neededWhenQueued(wait int32) bool {
	owner := h.owner(wait)
	if owner < 0 {
		return false
	}
	h.traceSure(wait, owner)
	w := h.nodes[wait]
	for i := wait + 1; i < owner; i++ {
		if n := &h.nodes[i]; n.Kind == Wait && n.Stream == w.Stream && n.Op == w.Op {
			h.joinFrom(wait, n)
		}
	}
	return slices.ContainsFunc(h.demands, func(d demand) bool {
		return d.then == owner && h.reaches(w.From, d.first) && !h.scratch.has(wait, d.first)
	})
}

// traceSure fills the rows up to node end without a wait, and without what the
// host may not have known when its call began.
func (h *History) traceSure(wait, end int32) {
	h.scratch.like(&h.before)
	since := h.nodes[wait].Since
	for at := range end {
		h.scratch.clear(at)
		h.scratch.join(at, h.previous[at])
		if at != wait {
			h.joinFrom(at, &h.nodes[at])
		}
		for _, l := range h.learned {
			if l.at <= at && l.sure <= since {
				h.scratch.join(at, l.node)
			}
		}
	}
}

// joinFrom adds to a row of scratch what a wait brings, but for allocations that
// it need not have been known to bring.
func (h *History) joinFrom(row int32, wait *Node) {
	var doubtful []int32
	for i := range h.nodes {
		at := int32(i)
		if n := &h.nodes[i]; n.Kind == Alloc && n.Known > wait.Known && !h.scratch.has(row, at) {
			doubtful = append(doubtful, at)
		}
	}
	h.scratch.join(row, wait.From)
	for _, at := range doubtful {
		h.scratch.unset(row, at)
	}
}

// demandFromWait adds to the row of a wait in scratch what it brings of that
// which its owner demands.
func (h *History) demandFromWait(wait int32) {
	owner := h.owner(wait)
	for _, d := range h.demands {
		if d.then == owner && h.before.has(wait, d.first) {
			h.scratch.join(wait, d.first)
		}
	}
}
