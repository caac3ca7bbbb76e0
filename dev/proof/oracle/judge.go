package oracle

import "slices"

// Verdict is what was found.
type Verdict struct {
	// Missed is how many orders that must be are not, or how many steps of
	// the host were let through that must not be.
	Missed int
	// Redundant is how many waits can be taken away and no order is lost.
	Redundant int
	// Extra is how many works another is ordered after although nothing
	// demands it.
	Extra int
	// Wrong is how many orders of execution read a wrong value or touched a
	// block outside its life; Schedules how many there are that differ.
	Wrong, Schedules int
	// Excused is the waits and orders too many that are of aborted launches,
	// or after work that the engine was not told of when it was enqueued, waits
	// for the end of a stream, and waits of allocations that are for memory next to theirs.
	Excused int
	// Waits is how many were queued.
	Waits int
	// Why says what is wrong with the first that is, empty if all is well.
	Why string
}

// Bad reports whether anything is wrong.
func (v *Verdict) Bad() bool { return v.Missed+v.Redundant+v.Extra+v.Wrong > 0 }

// Judge judges the history. Values are left out if it has uses that the
// engine was not asked to order, for those may race by their caller's fault.
func (h *History) Judge() Verdict {
	v := Verdict{}
	v.Missed = h.demand(false)
	for _, d := range h.demands {
		if !h.before.has(d.then, d.first) {
			h.blamef("%s does not come after %s", h.text(d.then), h.text(d.first))
			v.Missed++
		}
	}
	h.judgeWaits(&v)
	h.judgeExtra(&v)
	v.Schedules = 1
	if !h.hasUnfenced() {
		v.Schedules, v.Wrong = h.explore()
	}
	v.Why = h.blame
	return v
}

func (h *History) hasUnfenced() bool {
	return slices.ContainsFunc(h.nodes, func(n Node) bool { return n.Unfenced })
}

// judgeWaits takes away each wait in turn.
func (h *History) judgeWaits(v *Verdict) {
	for i := range h.nodes {
		if h.nodes[i].Kind != Wait {
			continue
		}
		v.Waits++
		if h.isOfFree(int32(i)) {
			h.blamef("%s is put there by a free, which waits for nothing", h.text(int32(i)))
			v.Redundant++
			continue
		}
		if h.needed(int32(i)) {
			continue
		}
		if h.nodes[i].Aborted || h.isLast(h.nodes[i].From) || h.behindUnfenced(h.nodes[i].From) || h.isLate(int32(i)) {
			v.Excused++
			continue
		}
		h.blamef("%s can be taken away", h.text(int32(i)))
		v.Redundant++
	}
}

// isOfFree reports whether a free has put a wait on the stream of its block, where unrelated work is that
// then waits, too.
func (h *History) isOfFree(wait int32) bool {
	owner := h.owner(wait)
	if h.FreesWait || owner < 0 || h.nodes[owner].Kind != Free {
		return false
	}
	for i := range h.nodes[:owner] {
		if n := &h.nodes[i]; n.Kind == Alloc && n.Block == h.nodes[owner].Block {
			return n.Stream == h.nodes[owner].Stream
		}
	}
	return false
}

// isLast reports whether a node is the end of a stream. The engine counts it as
// a point of its own, whether anything was enqueued since the point before or
// not.
func (h *History) isLast(at int32) bool { return at >= 0 && h.nodes[at].Kind == Last }

// behindUnfenced reports whether a node comes after work that the engine was
// told of late: an event that it meant for older work may have covered it.
func (h *History) behindUnfenced(at int32) bool {
	for i := range h.nodes {
		if n := &h.nodes[i]; n.Unfenced && n.Kind == Work && h.reaches(at, int32(i)) {
			return true
		}
	}
	return false
}

// needed reports whether an order is lost without a wait. Most often it is that
// of the very operation that the wait was queued for, which is quickly seen;
// else everything that came later is ordered anew.
func (h *History) needed(wait int32) bool {
	if h.neededBy(wait) {
		return true
	}
	h.scratch.like(&h.before)
	copy(h.scratch.words, h.before.words[:int(wait)*h.before.width])
	h.order(&h.scratch, &h.scratch, wait, -1)
	for at := wait + 1; int(at) < len(h.nodes); at++ {
		h.order(&h.scratch, &h.scratch, at, h.nodes[at].From)
	}
	lost := func(d demand) bool { return h.before.has(d.then, d.first) && !h.scratch.has(d.then, d.first) }
	return slices.ContainsFunc(h.demands, lost) || h.overlapped && h.neededWhenQueued(wait)
}

// neededBy reports whether the first node behind the wait on its stream, other
// waits left aside, loses an order.
func (h *History) neededBy(wait int32) bool {
	h.scratch.like(&h.before)
	h.order(&h.scratch, &h.before, wait, -1) // as if it waited for nothing
	for i := int(wait) + 1; i < len(h.nodes); i++ {
		n := &h.nodes[i]
		switch {
		case n.Stream != h.nodes[wait].Stream:
		case n.Kind == Wait:
			h.scratch.joinOf(&h.before, wait, n.From)
		default:
			h.joinLearned(&h.scratch, &h.before, wait, int32(i))
			return h.loses(int32(i), wait)
		}
	}
	return false
}

// loses reports whether a demand of node then is not met by the row of node
// without in scratch.
func (h *History) loses(then, without int32) bool {
	return slices.ContainsFunc(h.demands, func(d demand) bool {
		return d.then == then && h.before.has(then, d.first) && !h.scratch.has(without, d.first)
	})
}

// judgeExtra compares what is ordered with what must be.
func (h *History) judgeExtra(v *Verdict) {
	if h.hasUnfenced() { // what the engine did not know of, others may come after
		v.Excused += h.beyond(h.works(true))
	}
	works := h.works(false)
	v.Extra = h.beyond(works)
	if v.Extra == 0 || !slices.ContainsFunc(h.nodes, func(n Node) bool { return n.Aborted }) {
		h.blameExtra(works, v.Extra)
		return
	}
	all := v.Extra
	h.demand(true) // the aborted may be ordered, and what comes behind them
	v.Extra = h.beyond(works)
	v.Excused += all - v.Extra
	h.blameExtra(works, v.Extra)
	h.demand(false)
}

// beyond counts the works that others are ordered after and need not be. It
// leaves in scratch what is demanded.
func (h *History) beyond(works []uint64) int {
	h.scratch.like(&h.before)
	h.traceDemands()
	n := 0
	for i := range h.nodes {
		if k := h.nodes[i].Kind; k == Work || k == Alloc || k == Free {
			n += countBeyond(h.before.row(int32(i)), h.scratch.row(int32(i)), works)
		}
	}
	return n
}

// traceDemands fills scratch with stream order and demands. The demands are
// sorted by their later node, so every row is complete when another needs it.
func (h *History) traceDemands() {
	next, late := 0, 0
	for i := range h.nodes {
		at := int32(i)
		h.order(&h.scratch, &h.scratch, at, -1)
		for ; next < len(h.demands) && h.demands[next].then == at; next++ {
			first := h.demands[next].first
			h.scratch.join(at, first)
			if until := h.nodes[first].Until; until > first && until < at {
				h.scratch.join(at, until)
			}
		}
		for ; late < len(h.reuse.late) && h.reuse.late[late].then == at; late++ {
			h.scratch.join(at, h.reuse.late[late].first)
		}
		if h.overlapped && h.nodes[i].Kind == Wait {
			h.demandFromWait(at)
		}
	}
}

// works is the set of nodes that take time: unfenced ones or the others.
func (h *History) works(unfenced bool) []uint64 {
	set := make([]uint64, h.before.width)
	for i := range h.nodes {
		if h.nodes[i].Kind == Work && h.nodes[i].Unfenced == unfenced {
			add(set, int32(i))
		}
	}
	return set
}

// blameExtra names the first order too many.
func (h *History) blameExtra(works []uint64, extra int) {
	if extra == 0 || h.blame != "" {
		return
	}
	for i := range h.nodes {
		for j := range h.nodes[:i] {
			a, b := int32(j), int32(i)
			if has(works, a) && h.nodes[i].Kind != Wait && h.before.has(b, a) && !h.scratch.has(b, a) {
				h.blamef("%s comes after %s and need not", h.text(b), h.text(a))
				return
			}
		}
	}
}
