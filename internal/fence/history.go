package fence

import "github.com/fencepost-gpu/fencepost/core"

// History is the launches announced on a block, and its outstanding uses, with those
// that covered ones were not looked for since. Each access has one reference on its
// point. Its owner locks the block over every call while the block is live; a retired
// block's belongs to the caller that queues its free. Only Release may reach the driver.
type History struct {
	accesses []Access
}

// usualAccesses is for how many a block has room at first, so that the lists of
// two blocks share no cache line.
const usualAccesses = 8

// NewHistory returns an empty history with the usual room.
func NewHistory() History { return History{accesses: make([]Access, 0, usualAccesses)} }

// Begin begins a history with the block's first access: a stream that waits for ready may
// write it. span is that of the allocation, and ready's reference is the history's from
// now on. What was there must have been released.
func (h *History) Begin(ready *Point, span core.SpanRef) {
	h.accesses = append(h.accesses[:0], Access{point: ready, kind: core.Write, span: span})
}

// Clear begins a history without an access: no stream has to wait for the block.
func (h *History) Clear() { h.accesses = h.accesses[:0] }

// Announce adds the use of a launch on s that p will be placed behind, and to
// p's plan what the launch must be ordered after. If a launch on another
// stream is announced that it would have to be ordered against, it changes
// nothing and returns that launch's access. needed is how many dependencies the use has, before waits
// are found for them.
func (h *History) Announce(p *Point, kind core.Access, use int) (needed int, holder *Access) {
	s, plan := p.stream, &p.plan
	before := plan.needed
	h.prune(plan)
	for i := range h.accesses {
		if a := &h.accesses[i]; (a.point.stream != s || a.onPeer) && a.kind.Conflicts(kind) && a.point.IsOpen() {
			return 0, a
		}
	}
	for i := range h.accesses {
		switch a := &h.accesses[i]; {
		case a.point.stream != s:
			if a.kind.Conflicts(kind) {
				plan.add(s, a, use)
			}
			p.crossStream = p.crossStream || a.kind.Writes() && a.point.isLaunch()
		case kind.Writes() && a.point.IsDeferred():
			plan.noteSharer(a.point)
		}
	}
	h.accesses = append(h.accesses, Access{point: p, kind: kind})
	return int(plan.needed - before), nil
}

// AnnounceUndeclared adds a use that was enqueued before it is announced: it waits for
// nothing, and what comes next is ordered after it. p's reference is the history's.
func (h *History) AnnounceUndeclared(p *Point, kind core.Access) {
	h.accesses = append(h.accesses, Access{point: p, kind: kind})
}

// AddRecorded adds the use of work that was enqueued before anybody declared it, so that
// no waits were queued, with p behind it. It removes nothing but
// what the same stream's order covers, and what is known to be done; references on
// that go with plan.
func (h *History) AddRecorded(p *Point, plan *Plan) {
	kept := 0
	for _, old := range h.accesses {
		needless := old.point.isPlaced() && (old.point.needsNoWait() || old.point.stream == p.stream && old.point.seq < p.seq)
		if needless || old.point.isWithdrawn() {
			plan.releaseLater(old.point)
		} else {
			h.accesses[kept] = old
			kept++
		}
	}
	p.Retain()
	h.accesses = append(h.accesses[:kept], Access{point: p, kind: core.ReadWrite})
}

// prune drops the uses of launches that were withdrawn, and those that
// another covers. Two launches of one stream may end in either order, so the
// older is dropped by its sequence number and not by its coming first.
func (h *History) prune(plan *Plan) {
	if len(h.accesses) == 1 && h.accesses[0].point.isPlaced() {
		return
	}
	if len(h.accesses) == 2 { // of a block that one launch after the other uses
		old, last := &h.accesses[0], &h.accesses[1]
		if plan.hasSeen(old, last) || old.isBefore(last) || old.point.isPlaced() && last.covers(old) {
			plan.releaseLater(old.point)
			plan.older, plan.newer, plan.newerSeq = old.point, last.point, last.point.seq
			*old = *last
			h.accesses = h.accesses[:1]
			return
		}
	}
	kept := 0
	for i := range h.accesses {
		a := &h.accesses[i]
		if a.point.isWithdrawn() || h.covered(i, kept) {
			plan.releaseLater(a.point)
			continue
		}
		if kept < i {
			h.accesses[kept] = *a
		}
		kept++
	}
	h.accesses = h.accesses[:kept] // what lies behind are pooled points
}

// covered reports whether one of the first kept accesses, or one behind i,
// covers access i. That is enough: covering is transitive, so whatever a
// dropped access covered is covered by what dropped it.
func (h *History) covered(i, kept int) bool {
	a := &h.accesses[i]
	if !a.point.isPlaced() {
		return false
	}
	for j := range kept {
		if h.accesses[j].covers(a) {
			return true
		}
	}
	for j := i + 1; j < len(h.accesses); j++ {
		if h.accesses[j].covers(a) {
			return true
		}
	}
	return false
}

// SetSpan gives the uses of p's launch their span, for links.
func (h *History) SetSpan(p *Point, span core.SpanRef) {
	for i := range h.accesses {
		if h.accesses[i].point == p {
			h.accesses[i].span = span
		}
	}
}

// UsedOnlyOn reports whether the order of s alone orders a free behind every use.
func (h *History) UsedOnlyOn(s *Stream) bool {
	for i := range h.accesses {
		if h.accesses[i].point.stream != s {
			return false
		}
	}
	return true
}

// PlanFree adds to plan every use that a free on s must come after.
func (h *History) PlanFree(s *Stream, plan *Plan) {
	h.prune(plan)
	for i := range h.accesses {
		plan.add(s, &h.accesses[i], -1)
	}
}

// Release gives up all references and ends the history. No other caller may know of the
// block.
func (h *History) Release() {
	for i := range h.accesses {
		h.accesses[i].point.Release()
	}
	h.accesses = h.accesses[:0]
}

// ReleaseOn is Release where s is locked, which keeps a reference on its ready point for another allocation.
func (h *History) ReleaseOn(s *Stream) {
	for i := range h.accesses {
		if p := h.accesses[i].point; p == s.readyPoint {
			s.kept++
		} else {
			p.Release()
		}
	}
	h.accesses = h.accesses[:0]
}

// Watch makes the launches that are open tell of their end, see [Point.End], and
// reports whether there are any.
func (h *History) Watch() (open bool) {
	for i := range h.accesses {
		if p := h.accesses[i].point; p.IsOpen() && p.watch() {
			open = true
		}
	}
	return open
}

// HasOpen reports whether a launch is open.
func (h *History) HasOpen() bool {
	for i := range h.accesses {
		if h.accesses[i].point.IsOpen() {
			return true
		}
	}
	return false
}

// Exclude makes the use of the launch with that number conflict with launches on its
// own stream, too: its work runs on another device. If such a launch is open it changes
// nothing and returns a channel that is closed when that has ended.
func (h *History) Exclude(launch uint64, kind core.Access) (ended <-chan struct{}) {
	var own *Access
	for i := range h.accesses {
		switch a := &h.accesses[i]; {
		case a.point.launch == launch:
			own = a
		case a.point.IsOpen() && a.kind.Conflicts(kind):
			return a.point.waitEnded()
		}
	}
	if own != nil {
		own.onPeer = true
	}
	return nil
}

// Unordered lists the uses that conflict with a kind of access on s and that nothing
// orders before it, where known is a copy of s's clock. A use
// of which it is not known any more that it is ordered is listed; a use that was withdrawn
// is none.
func (h *History) Unordered(s *Stream, known Known, kind core.Access) []core.UseRecord {
	var racing []core.UseRecord
	for i := range h.accesses {
		a := &h.accesses[i]
		ordered := a.point.isPlaced() && (a.point.needsNoWait() || known.clock.covers(a.point.stream.slot, a.point.seq))
		if a.point.stream == s && (!a.onPeer || !a.point.IsOpen()) {
			ordered = true
		}
		if ordered || a.point.isWithdrawn() || !a.kind.Conflicts(kind) {
			continue
		}
		racing = append(racing, core.UseRecord{LaunchID: a.point.launch, Launch: a.point.name, Stream: a.point.lease, Access: a.kind, Span: a.span})
	}
	return racing
}
