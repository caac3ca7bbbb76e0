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
// that the device has passed that number.

// readiness returns the event behind an allocation that is about to be
// enqueued, which takes a reference of its own; s.mu must be held.
func (s *stream) readiness(lease core.StreamID) (*event, error) {
	if s.ready != nil {
		if s.ready.lease == lease && !s.sealed {
			return s.ready, nil
		}
		if err := s.flush(); err != nil {
			return nil, err
		}
	}
	e, err := s.events.get(s)
	if err != nil {
		return nil, err
	}
	e.lease, e.launch, e.name = lease, 0, ""
	s.place(e)
	e.late.Store(true)
	e.state.Store(recorded)
	s.ready, s.sealed = e, false
	return e, nil
}

// flush records the event behind the allocations, if there is one and anybody
// could need it; s.mu must be held.
func (s *stream) flush() error {
	e := s.ready
	if e == nil {
		return nil
	}
	if e.refs.Load() > 1 {
		if err := s.recordLate(e); err != nil {
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

func (s *stream) recordLate(e *event) error {
	if !e.late.Load() {
		return nil
	}
	if err := s.refuseCaptured("PrepareUse", e.lease); err != nil {
		return err
	}
	if err := s.drv.EventRecord(e.handle, s.handle); err != nil {
		return err
	}
	e.late.Store(false)
	return nil
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
		if e := f.deps[i].event; e.late.Load() && !e.seenDone() {
			if err := e.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *event) flush() error {
	s := e.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready == e {
		return s.flush()
	}
	return s.recordLate(e)
}
