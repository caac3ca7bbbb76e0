package cuda

import "github.com/fencepost-gpu/fencepost/core"

// access is one outstanding use of a block: work that a later use or the
// free may have to wait for.
type access struct {
	event *event
	kind  core.Access
	// span is the finish or alloc span of the work, for links.
	span core.SpanRef
	// onPeer: until the event is placed the work runs on another device, and is in
	// no stream's order.
	onPeer bool
}

// covers reports whether whoever waits for a need not wait for b, which is
// placed: b is ordered before a, and whatever must wait for b must wait for a.
func (a *access) covers(b *access) bool {
	return (a.kind.Writes() || !b.kind.Writes()) && a.event.isPlaced() && a.event.clock.covers(b.event.stream.slot, b.event.seq)
}

// dependency is an access of another stream that a use must be ordered after.
type dependency struct {
	event *event
	span  core.SpanRef
	// use is the index of the use that has it; -1 for a free.
	use int
}

// waitRef names what the dependency is on, for a use of the block g.
func (d *dependency) waitRef(g core.Generation) core.WaitRef {
	if d.event.isLaunch() {
		return core.LaunchWait(d.event.launch)
	}
	return core.BlockWait(g)
}

// fence is the outcome of ordering one stream after some dependencies.
type fence struct {
	// deps that follow each other and name one event hold one reference.
	deps []dependency
	// sharersWritten is how many blocks that the launch writes share the ready
	// point of its stream, sharedSeq the number of that point: an event may be
	// used again, a number never.
	sharersWritten int32
	sharedSeq      uint64
	// gone are the references of accesses that were dropped. They are released
	// with the fence, under no lock: the last reference on an event of a stream
	// that is gone has the driver destroy it.
	gone []goneRefs
}

// goneRefs are references on one event: launches of several blocks leave
// several.
type goneRefs struct {
	event *event
	n     int32
}

// newFence returns a fence with room for what is usual, so that the lists of
// two fences share no cache line.
func newFence() fence {
	return fence{deps: make([]dependency, 0, 8), gone: make([]goneRefs, 0, 4)}
}

// noteSharer counts a block that the launch writes and that shares e, a ready
// point of its stream. Only the newest can matter.
func (f *fence) noteSharer(e *event) {
	if e.seq > f.sharedSeq {
		f.sharersWritten, f.sharedSeq = 0, e.seq
	}
	if e.seq == f.sharedSeq {
		f.sharersWritten++
	}
}

// add notes that the use needs a of another stream. The event is retained
// until the fence is dropped.
func (f *fence) add(s *stream, a *access, use int) {
	if a.event.stream == s || !a.event.isPlaced() {
		return
	}
	if n := len(f.deps); n == 0 || f.deps[n-1].event != a.event {
		a.event.retain()
	}
	f.deps = append(f.deps, dependency{event: a.event, span: a.span, use: use})
}

// release gives up an access's reference on e, when the fence is dropped.
func (f *fence) release(e *event) {
	if n := len(f.gone); n > 0 && f.gone[n-1].event == e {
		f.gone[n-1].n++
		return
	}
	f.gone = append(f.gone, goneRefs{event: e, n: 1})
}

// drop gives up all references; no lock may be held.
func (f *fence) drop() {
	for i := range f.gone {
		f.gone[i].event.releaseMany(f.gone[i].n)
	}
	clear(f.gone)
	f.gone = f.gone[:0]
	for i := range f.deps {
		if i == 0 || f.deps[i-1].event != f.deps[i].event {
			f.deps[i].event.release()
		}
	}
	clear(f.deps)
	f.deps = f.deps[:0]
}

// queue makes s wait for the dependencies, with as few waits as will do, and
// calls waited for each one that needed a wait. The dependencies must have
// been flushed, and s.mu must be held. After an
// error some waits may have been queued: they order more than was asked and
// harm nothing.
func (f *fence) queue(s *stream, waited func(dependency)) error {
	s.slots = s.slots[:0]
	for i := range f.deps {
		if i == 0 || f.deps[i].event != f.deps[i-1].event {
			s.keepNewest(&f.deps[i])
		}
	}
	var failed error
	for _, slot := range s.slots {
		d := s.newest[slot]
		if failed == nil && !s.dominated(d) {
			if failed = s.wait(d.event); failed == nil && waited != nil {
				waited(d)
			}
		}
	}
	for _, slot := range s.slots {
		s.newest[slot] = dependency{}
	}
	return failed
}

// keepNewest notes d as the one to wait for on its stream, unless the stream
// s is ordered after it already or a newer one is noted: a stream's newer
// event covers its older ones.
func (s *stream) keepNewest(d *dependency) {
	slot := d.event.stream.slot
	if d.event.needsNoWait() || s.clock.covers(slot, d.event.seq) {
		return
	}
	for len(s.newest) <= slot {
		s.newest = append(s.newest, dependency{})
	}
	switch noted := s.newest[slot].event; {
	case noted == nil:
		s.slots = append(s.slots, slot)
		s.newest[slot] = *d
	case noted.seq < d.event.seq:
		s.newest[slot] = *d
	}
}

// dominated reports whether a wait for another noted dependency, or one that
// was queued meanwhile, orders s after d as well.
func (s *stream) dominated(d dependency) bool {
	slot, seq := d.event.stream.slot, d.event.seq
	if s.clock.covers(slot, seq) {
		return true
	}
	for _, other := range s.slots {
		if other != slot && s.newest[other].event.clock.covers(slot, seq) {
			return true
		}
	}
	return false
}
