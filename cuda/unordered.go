package cuda

import "github.com/fencepost-gpu/fencepost/core"

var _ core.Orderer = (*AsyncResource)(nil)

// Unordered implements [core.Orderer]. What the clocks forgot they forgot on
// the side of a wait, so a use whose order is not known any more is listed; a
// use that was withdrawn is none.
func (r *AsyncResource) Unordered(id core.BlockID, stream core.StreamID, kind core.Access) []core.UseRecord {
	s, err := r.streams.table.resolve("Unordered", stream)
	if err != nil {
		return nil
	}
	known := s.knows() // before the block's lock: who has the stream's may hold it over a driver's call
	b, err := r.find("Unordered", id, stream)
	if err != nil {
		return nil
	}
	defer b.mu.Unlock()
	var racing []core.UseRecord
	for i := range b.accesses {
		a := &b.accesses[i]
		ordered := a.event.isPlaced() && (a.event.needsNoWait() || known.covers(a.event.stream.slot, a.event.seq))
		if a.event.stream == s && (!a.onPeer || !a.event.isOpen()) {
			ordered = true
		}
		if ordered || a.event.isWithdrawn() || !a.kind.Conflicts(kind) {
			continue
		}
		racing = append(racing, core.UseRecord{LaunchID: a.event.launch, Launch: a.event.name, Stream: a.event.lease, Access: a.kind, Span: a.span})
	}
	return racing
}

// knows is a copy of the stream's clock.
func (s *stream) knows() clock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return newClock().copyFrom(s.clock)
}
