package cuda

import "github.com/fencepost-gpu/fencepost/core"

// The ready point of a stream is the point behind which its newest allocations are
// ready for other streams. Most blocks are never used on another stream before they
// were written on their own. So the point's record is deferred: consecutive
// allocations share one point, which is recorded only when something needs it. A
// service that stays on its streams never pays for it.
//
// # The protocol
//
// A ready point is recorded before the runtime enqueues anything else on the stream
// (a launch, a wait, another event), and at once if a launch is announced there,
// whose work may come at any moment. So it orders no more than a point that is
// recorded immediately: only frees, which are no work, may lie between. A launch that
// writes all the blocks that share the point makes it needless, because the launch's
// own event covers it. If that launch is withdrawn, the next who needs the point
// records it.
//
// The point is placed with the first allocation. So it is sealed, and later
// allocations do not share it, before anybody may come to believe that its sequence
// number is completed.
//
// # Who records it
//
// The stream does, under its lock. A launch of another stream that needs the point
// does, too, without that lock, because an allocation may hold it for as long as the
// driver takes to get more memory. The deferred record is made under the event's own
// lock, which is held over that one call of the driver. The stream finds out when it
// looks next. Until then the event stays its ready point, which is harmless: a point
// that is not deferred is neither recorded again nor shared.
//
// So a point may be recorded while an allocation that was to share it is being made,
// before or after the allocation on the stream. Nobody can know which, and other
// streams believe from then on that they are ordered after the point. Such an
// allocation gets a point of its own: its block is not visible before the allocation
// returns, so nobody has seen it with the other point. The event for it is fetched
// before the driver is asked for memory, because no failure may come after that.

// pointForAllocation returns the event behind an allocation that is about to be
// enqueued, and one to have in reserve if others can record the first
// meanwhile. The allocation takes a reference on either with
// [stream.confirmReadyPoint], which must be called if the driver gave it memory;
// s.mu must be held.
func (s *stream) pointForAllocation(lease core.StreamID) (ready, reserve *event, err error) {
	if e := s.readyPoint; e != nil {
		// Who else has a reference may record it and then give that up, so this
		// is looked at first: without another nobody can.
		shared := e.sharers() > 0
		if e.lease == lease && !s.sealed && e.deferred.Load() {
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
	s.placeReadyPoint(e, lease)
	return e, nil, nil
}

// placeReadyPoint makes e, which is new, the event behind the allocations from now
// on; s.mu must be held.
func (s *stream) placeReadyPoint(e *event, lease core.StreamID) {
	e.lease, e.launch, e.name = lease, 0, ""
	s.place(e)
	e.deferred.Store(true)
	e.state.Store(placed)
	s.readyPoint, s.sealed = e, false
}

// confirmReadyPoint returns the event that an allocation which was made is ready
// behind, with a reference: the one that was to be, unless it has been
// recorded meanwhile; s.mu must be held.
func (s *stream) confirmReadyPoint(ready, reserve *event) *event {
	if reserve != nil && ready.wasRecorded() {
		lease := ready.lease
		s.detach()
		s.placeReadyPoint(reserve, lease)
		ready, reserve = reserve, nil
	}
	ready.retain()
	if reserve != nil {
		reserve.release()
	}
	return ready
}

// sharers is how many refer to a stream's ready point besides the stream, which has
// one reference: blocks that are ready behind it, and those who prepare a wait for
// it. At none it is needless, because nobody can come to it any more.
func (e *event) sharers() int32 { return e.refs.Load() - 1 }

// flush records the event behind the allocations, if there is one and anybody
// could need it; s.mu must be held.
func (s *stream) flush() error {
	e := s.readyPoint
	if e == nil {
		return nil
	}
	if e.sharers() > 0 {
		if err := e.recordDeferred(); err != nil {
			return err
		}
	}
	s.detach()
	return nil
}

// coveredBy reports whether the launch of f writes all the blocks that share the
// ready point, so that the launch's own event will do; s.mu must be held. Every
// sharer must be a block that the launch writes: any other may need the point.
func (s *stream) coveredBy(f *fence) bool {
	if s.readyPoint == nil {
		return true
	}
	sharers := s.readyPoint.sharers()
	return sharers == 0 || s.readyPoint.seq == f.sharedSeq && sharers == f.sharersWritten
}

// detach gives up the event, which is recorded or needless; s.mu must be held.
func (s *stream) detach() {
	if e := s.readyPoint; e != nil {
		s.readyPoint = nil
		e.release()
	}
}

// renounce gives up the event of a stream whose handle must not be named any
// more, and whose work is known to be completed; s.mu must be held.
func (s *stream) renounce() {
	if e := s.readyPoint; e != nil {
		e.mu.Lock() // whoever is recording it is waited for
		e.deferred.Store(false)
		e.mu.Unlock()
		s.detach()
	}
}

// recordDeferred records the event unless that was done. The caller holds a
// reference, and may hold the stream's lock or not.
func (e *event) recordDeferred() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.deferred.Load() {
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
	e.deferred.Store(false)
	return nil
}

// wasRecorded reports whether the event has been recorded. What is enqueued on
// its stream before the call lies before the event if it has not been.
func (e *event) wasRecorded() bool {
	e.mu.Lock() // not while somebody records it
	defer e.mu.Unlock()
	return !e.deferred.Load()
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
		if e := f.deps[i].event; e.deferred.Load() && !e.needsNoWait() {
			if err := e.recordDeferred(); err != nil {
				return err
			}
		}
	}
	return nil
}
