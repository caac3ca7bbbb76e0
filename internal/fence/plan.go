package fence

import "github.com/fencepost-gpu/fencepost/core"

// dependency is an access of another stream that a use must be ordered after.
type dependency struct {
	point *Point
	of    Access // as it was
	// use is the index of the first use that has it; -1 for a free.
	use int
}

// waitRef names what the dependency is on, for a use of the block g.
func (d *dependency) waitRef(g core.Generation) core.WaitRef {
	if d.point.isLaunch() {
		return core.WaitRef{Launch: d.point.launch}
	}
	return core.WaitRef{Block: g}
}

// Plan is what one stream must be ordered after, for a launch or a free, on its way to
// the fewest waits that do. A launch's lies in its point; one of a free is taken with
// its zero value and may be used again after [Plan.Drop]. It is one goroutine's.
type Plan struct {
	// deps have one of those that follow each other and name one point, and a reference on each.
	deps []dependency
	// sharersWritten is how many blocks that the launch writes share the ready
	// point of its stream, sharedSeq the number of that point: a point may be
	// used again, a number never.
	sharersWritten int32
	// needed is how many dependencies the uses have, each for itself.
	needed    int32
	sharedSeq uint64
	// gone are the references of accesses that were dropped. They are released
	// with the plan, while no block is locked: the last reference on a point of a stream
	// that is gone has the driver destroy its event.
	gone []goneRefs
	// older is a point whose access was dropped because newer, which was placed at newerSeq, covers it: most blocks of
	// a launch have the same two.
	older, newer *Point
	newerSeq     uint64
}

// goneRefs are references on one point: launches of several blocks leave
// several.
type goneRefs struct {
	point *Point
	n     int32
}

// newPlan returns a plan with room for what is usual, so that the lists of
// two plans share no cache line.
func newPlan() Plan {
	return Plan{deps: make([]dependency, 0, 8), gone: make([]goneRefs, 0, 4)}
}

// noteSharer counts a block that the launch writes and that shares p, a ready
// point of its stream. Only the newest can matter.
func (plan *Plan) noteSharer(p *Point) {
	if p.seq > plan.sharedSeq {
		plan.sharersWritten, plan.sharedSeq = 0, p.seq
	}
	if p.seq == plan.sharedSeq {
		plan.sharersWritten++
	}
}

// add notes that the use needs a, if that is of another stream than s and placed. The
// point is retained until the plan is dropped.
func (plan *Plan) add(s *Stream, a *Access, use int) {
	if a.point.stream == s || !a.point.isPlaced() {
		return
	}
	plan.needed++
	if n := len(plan.deps); n > 0 && plan.deps[n-1].point == a.point {
		return
	}
	a.point.Retain()
	plan.deps = append(plan.deps, dependency{point: a.point, of: *a, use: use})
}

// AddFinal adds the final point of a stream that was given up: a free on s comes after
// all of its work.
func (plan *Plan) AddFinal(s *Stream, final *Point) { plan.add(s, &Access{point: final}, -1) }

// releaseLater gives up an access's reference on p when the plan is dropped.
func (plan *Plan) releaseLater(p *Point) {
	if n := len(plan.gone); n > 0 && plan.gone[n-1].point == p {
		plan.gone[n-1].n++
		return
	}
	plan.gone = append(plan.gone, goneRefs{point: p, n: 1})
}

// hasSeen reports whether a covers b, as the points of an earlier block's accesses did.
func (plan *Plan) hasSeen(b, a *Access) bool {
	return plan.older == b.point && plan.newer == a.point && a.point.isPlaced() && a.point.seq == plan.newerSeq && (a.kind.Writes() || !b.kind.Writes())
}

// Drop gives up all references; no block may be locked.
func (plan *Plan) Drop() {
	plan.needed = 0
	plan.older = nil // which is in gone
	for i := range plan.gone {
		g := &plan.gone[i]
		g.point.ReleaseMany(g.n)
		*g = goneRefs{} // most plans have one: clear would be a call
	}
	plan.gone = plan.gone[:0]
	for i := range plan.deps {
		plan.deps[i].point.Release()
	}
	if len(plan.deps) > 0 {
		clear(plan.deps)
		plan.deps = plan.deps[:0]
	}
}

// QueueFree makes s wait for everything that a free must come after, or the use of memory that was
// freed, and counts the waits. If waited is not nil it is told of each that was queued, without its use and access.
// s must be locked. None of the dependencies is deferred: the only such point
// among a block's accesses is its own stream's ready point, and a stream records or
// completes that before it is given up and the free comes to another. Errors are the
// driver's; some waits may have been queued then.
func (plan *Plan) QueueFree(s *Stream, waited func(core.Waited)) error {
	return plan.queue(s, func(d *dependency) {
		s.counts.Waits.Add(1)
		if waited != nil {
			waited(core.Waited{Use: -1, Stream: d.point.lease, Span: d.of.span, For: d.waitRef(0), Launch: d.point.launchName()})
		}
	})
}

// queue makes s wait for the dependencies, with as few waits as will do, and
// calls waited for each one that needed a wait. s must be locked. After an
// error some waits may have been queued: they order more than was asked and
// harm nothing.
func (plan *Plan) queue(s *Stream, waited func(*dependency)) error {
	s.slots = s.slots[:0]
	for i := range plan.deps {
		s.keepNewest(&plan.deps[i])
	}
	var failed error
	for _, slot := range s.slots {
		d := &s.noted[slot]
		if failed == nil && !s.dominated(d.point) {
			if failed = s.wait(d.point); failed == nil && waited != nil {
				waited(d)
			}
		}
	}
	for _, slot := range s.slots {
		s.noted[slot] = dependency{}
	}
	return failed
}

// keepNewest notes d as the one to wait for on its stream, unless the stream
// s is ordered after it already or a newer one is noted: a stream's newer
// point covers its older ones.
func (s *Stream) keepNewest(d *dependency) {
	slot := d.point.stream.slot
	if d.point.needsNoWait() || s.clock.covers(slot, d.point.seq) {
		return
	}
	for len(s.noted) <= slot {
		s.noted = append(s.noted, dependency{})
	}
	switch p := s.noted[slot].point; {
	case p == nil:
		s.slots = append(s.slots, slot)
		s.noted[slot] = *d
	case p.seq < d.point.seq:
		s.noted[slot] = *d
	}
}

// dominated reports whether a wait for another noted dependency, or one that
// was queued meanwhile, orders s after p as well.
func (s *Stream) dominated(p *Point) bool {
	slot, seq := p.stream.slot, p.seq
	if s.clock.covers(slot, seq) {
		return true
	}
	for _, other := range s.slots {
		if other != slot && s.noted[other].point.clock.covers(slot, seq) {
			return true
		}
	}
	return false
}
