package cuda

import "github.com/fencepost-gpu/fencepost/core"

// An allocation is ready for other streams behind an event on its own. Most
// blocks are never used on another stream before they were written on their
// own, so that event is not recorded at once: allocations share one that is
// recorded late, which costs a service that stays on its stream nothing.
//
// # The protocol
//
// It is recorded before anything else is enqueued on the stream that the
// runtime knows of (a launch, a wait, another event), and at once if a launch
// is announced there, whose work may come at any moment. So it orders no more
// than one recorded at once would: only frees, which are no work, may lie
// between. A launch that writes all the blocks that share it makes it
// needless, because the launch's own event covers it. Should that launch be
// withdrawn it is recorded by whoever needs it next.
//
// Its sequence number is taken with the first allocation. So it is sealed,
// and later allocations do not share it, before anybody may come to believe
// that this number is completed.
//
// # Who records it
//
// The stream does, under its lock, and so does the launch of another stream
// that needs it, without that lock: an allocation may hold it for as long as
// the driver takes to get more memory. What makes late recorded is done under
// the event's own lock, which is held over that one call of the driver's.
// The stream finds out when it looks next; until then the event stays its
// ready one, which harms nothing, because what is not late is neither recorded
// again nor shared.
//
// So an event may be recorded while an allocation that was to share it is
// being made, on whichever side of it. Nobody can know which, and other
// streams believe from then on that they are ordered after its number. Such
// an allocation gets an event of its own: its block is not visible before it
// returns, so nobody has seen it with the other. That event is fetched before
// the driver is asked for memory, for a failure must not come after it.

// readiness returns the event behind an allocation that is about to be
// enqueued, and one to have in reserve if others can record the first
// meanwhile. The allocation takes a reference on either with
// [stream.readyBehind], which must be called if the driver gave it memory;
// s.mu must be held.
func (s *stream) readiness(lease core.StreamID) (ready, reserve *event, err error) {
	if e := s.ready; e != nil {
		// Who else has a reference may record it and then give that up, so this
		// is looked at first: without another nobody can.
		shared := e.refs.Load() > 1
		if e.lease == lease && !s.sealed && e.late.Load() {
			if shared {
				reserve, err = s.events.get(s, 1)
			}
			return e, reserve, err
		}
		if err := s.flush(); err != nil {
			return nil, nil, err
		}
	}
	e, err := s.events.get(s, 1)
	if err != nil {
		return nil, nil, err
	}
	s.makeReady(e, lease)
	return e, nil, nil
}

// makeReady makes e, which is new, the event behind the allocations from now
// on; s.mu must be held.
func (s *stream) makeReady(e *event, lease core.StreamID) {
	e.lease, e.launch, e.name = lease, 0, ""
	s.place(e)
	e.late.Store(true)
	e.state.Store(recorded)
	s.ready, s.sealed = e, false
}

// readyBehind returns the event that an allocation which was made is ready
// behind, with a reference: the one that was to be, unless it has been
// recorded meanwhile; s.mu must be held.
func (s *stream) readyBehind(ready, reserve *event) *event {
	if reserve != nil && ready.wasRecorded() {
		lease := ready.lease
		s.detach()
		s.makeReady(reserve, lease)
		ready, reserve = reserve, nil
	}
	ready.retain()
	if reserve != nil {
		reserve.release()
	}
	return ready
}

// flush records the event behind the allocations, if there is one and anybody
// could need it; s.mu must be held.
func (s *stream) flush() error {
	e := s.ready
	if e == nil {
		return nil
	}
	if e.refs.Load() > 1 {
		if err := e.recordLate(); err != nil {
			return err
		}
	}
	s.detach()
	return nil
}

// coveredBy reports whether the launch of f writes all the blocks that share
// the event, so that its own will do; s.mu must be held.
func (s *stream) coveredBy(f *fence) bool {
	if s.ready == nil {
		return true
	}
	refs := s.ready.refs.Load() // the stream's and the blocks'
	return refs == 1 || s.ready.seq == f.ownSeq && refs == f.own+1
}

// detach gives up the event, which is recorded or needless; s.mu must be held.
func (s *stream) detach() {
	if e := s.ready; e != nil {
		s.ready = nil
		e.release()
	}
}

// renounce gives up the event of a stream whose handle must not be named any
// more, and whose work the host has seen done; s.mu must be held.
func (s *stream) renounce() {
	if e := s.ready; e != nil {
		e.mu.Lock() // whoever is recording it is waited for
		e.late.Store(false)
		e.mu.Unlock()
		s.detach()
	}
}

// recordLate records the event unless that was done. The caller holds a
// reference, and may hold the stream's lock or not.
func (e *event) recordLate() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.late.Load() {
		return nil
	}
	s := e.stream
	s.gate.Lock() // no capture begins meanwhile
	defer s.gate.Unlock()
	if err := s.refuseCaptured("making an allocation ready", e.lease); err != nil {
		return err
	}
	if err := s.drv.EventRecord(e.handle, s.handle); err != nil {
		return err
	}
	e.late.Store(false)
	return nil
}

// wasRecorded reports whether the event has been recorded. What is enqueued on
// its stream before the call lies before the event if it has not been.
func (e *event) wasRecorded() bool {
	e.mu.Lock() // not while somebody records it
	defer e.mu.Unlock()
	return !e.late.Load()
}

// point returns the newest place in the stream's order. What is enqueued
// later lies behind it; s.mu must be held.
func (s *stream) point() uint64 {
	s.sealed = true
	return s.seq
}

// flushOthers records the dependencies that are not yet; no lock may be held.
func (f *fence) flushOthers() error {
	for i := range f.deps {
		if e := f.deps[i].event; e.late.Load() && !e.needsNoWait() {
			if err := e.recordLate(); err != nil {
				return err
			}
		}
	}
	return nil
}
