package fence

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
// own point covers it. If that launch is withdrawn, the next who needs the point
// records it.
//
// The point is placed with the first allocation. So it stops being shareable, and
// later allocations get another one, before anybody may come to believe that its
// sequence number is completed.
//
// A launch that needs no wait asks whether there is a ready point without the stream's lock. A point
// that is placed after it has asked is as one that is placed after it was announced.
//
// # Who records it
//
// The stream does, under its lock. A launch of another stream that needs the point
// does, too, without that lock, because an allocation may hold it for as long as the
// driver takes to get more memory. The deferred record is made under the point's own
// lock, which is held over that one call of the driver. The stream finds out when it
// looks next. Until then the point stays its ready point, which is harmless: a point
// that is not deferred is neither recorded again nor shared.
//
// So a point may be recorded while an allocation that was to share it is being made,
// before or after the allocation on the stream. Which cannot be known, and other
// streams believe from then on that they are ordered after the point. Such an
// allocation gets a point of its own: its block is not visible before the allocation
// returns, so no caller has seen it with the other point. The event for it is fetched
// before the driver is asked for memory, because no failure may come after that.

// PointForAllocation returns the point behind an allocation that is about to be
// enqueued, and one to have in reserve if others can record the first
// meanwhile. The allocation takes a reference on either with
// [Stream.ConfirmReadyPoint] if the driver gave it memory, and releases the reserve if
// not. The stream must be locked. Errors are the driver's.
func (s *Stream) PointForAllocation(lease core.StreamID) (ready, reserve *Point, err error) {
	if p := s.readyPoint; p != nil {
		// Who else has a reference may record it and then give that up, so this
		// is looked at first: without another no stream can.
		shared := s.sharers() > 0
		if p.lease == lease && s.shareable && p.IsDeferred() {
			if shared {
				reserve, err = s.point(1)
			}
			return p, reserve, err
		}
		if err := s.Flush(); err != nil {
			return nil, nil, err
		}
	}
	p, err := s.point(1)
	if err != nil {
		return nil, nil, err
	}
	s.placeReadyPoint(p, lease)
	return p, nil, nil
}

// PointAtHand returns the point behind an allocation that enqueues nothing, with a
// reference for it; nil if that needs a call of the driver, or another goroutine is making one for the
// point. It is not recorded until the caller, who has made the allocation or not, calls
// [Point.MayBeRecorded]: so no reserve is needed. The stream must be locked.
func (s *Stream) PointAtHand(lease core.StreamID) *Point {
	p := s.readyPoint
	if p != nil && p.lease == lease && s.shareable && p.holdDeferred() {
		if s.kept == 0 {
			p.refs.Add(keptAtOnce)
			s.kept = keptAtOnce
		}
		s.kept--
		return p
	}
	if p != nil && s.sharers() > 0 && p.IsDeferred() {
		return nil
	}
	fresh := s.points.take()
	if fresh == nil {
		return nil
	}
	fresh.refs.Store(1)
	if !fresh.mu.TryLock() { // no other goroutine has it; a caller that waits for none never does
		fresh.Release()
		return nil
	}
	s.detach()
	s.placeReadyPoint(fresh, lease)
	fresh.Retain()
	return fresh
}

// keptAtOnce is how many references on its ready point a stream takes at a time for the allocations to come: to change
// their count takes longer than much of the rest.
const keptAtOnce = 64

// holdDeferred takes the lock of the stream's ready point if its record is still to be made, and is not being made.
func (p *Point) holdDeferred() bool {
	if !p.mu.TryLock() {
		return false
	}
	if !p.IsDeferred() {
		p.mu.Unlock()
		return false
	}
	return true
}

// MayBeRecorded ends what [Stream.PointAtHand] began.
func (p *Point) MayBeRecorded() { p.mu.Unlock() }

// placeReadyPoint makes p, which is new, the point behind the allocations from now
// on; the stream must be locked.
func (s *Stream) placeReadyPoint(p *Point, lease core.StreamID) {
	p.lease, p.launch, p.name = lease, 0, ""
	s.place(p)
	p.state.Store(deferred)
	s.readyPoint, s.shareable = p, true
	s.readies.Store(true)
}

// ConfirmReadyPoint returns the point that an allocation which was made is ready
// behind, with a reference: the one that was to be, unless it has been
// recorded meanwhile. The stream must be locked as it was when
// [Stream.PointForAllocation] returned the two.
func (s *Stream) ConfirmReadyPoint(ready, reserve *Point) *Point {
	if reserve != nil && ready.wasRecorded() {
		lease := ready.lease
		s.detach()
		s.placeReadyPoint(reserve, lease)
		ready, reserve = reserve, nil
	}
	ready.Retain()
	if reserve != nil {
		reserve.Release()
	}
	return ready
}

// sharers is how many refer to the ready point besides the stream, which has one reference
// and those that it keeps: blocks that are ready behind it, and those who prepare a wait for
// it. At none it is needless, because it cannot be come to any more. There must be one, and the stream must be locked.
func (s *Stream) sharers() int32 { return s.readyPoint.refs.Load() - 1 - s.kept }

// Flush records the ready point, if there is one and anybody could need it. It must
// come before anything that is enqueued on the stream; the stream must be locked.
func (s *Stream) Flush() error {
	if s.readyPoint == nil {
		return nil
	}
	return s.flush()
}

// flush is Flush of a stream that has a ready point.
func (s *Stream) flush() error {
	p := s.readyPoint
	if s.sharers() > 0 {
		if err := p.recordDeferred(); err != nil {
			return err
		}
	}
	s.detach()
	return nil
}

// coveredBy reports whether the launch of plan writes all the blocks that share the
// ready point, so that the launch's own point will do; the stream must be locked.
// Every sharer must be a block that the launch writes: any other may need the point.
func (s *Stream) coveredBy(plan *Plan) bool {
	if s.readyPoint == nil {
		return true
	}
	sharers := s.sharers()
	return sharers == 0 || s.readyPoint.seq == plan.sharedSeq && sharers == plan.sharersWritten
}

// detach gives up the ready point, which is recorded or needless; the stream must be
// locked.
func (s *Stream) detach() {
	if p := s.readyPoint; p != nil {
		s.readyPoint = nil
		s.readies.Store(false)
		kept := s.kept
		s.kept = 0
		p.ReleaseMany(1 + kept)
	}
}

// renounce gives up the ready point of a stream whose handle must not be named any
// more, and whose work is known to be completed; the stream must be locked.
func (s *Stream) renounce() {
	if p := s.readyPoint; p != nil {
		p.mu.Lock() // a goroutine that is recording it is waited for
		if p.IsDeferred() {
			p.state.Store(synthetic)
		}
		p.mu.Unlock()
		s.detach()
	}
}

// recordDeferred records the point's event unless that was done. The caller holds a
// reference, and may hold the stream's lock or not.
func (p *Point) recordDeferred() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.IsDeferred() {
		return nil
	}
	s := p.stream
	s.gate.Lock() // no capture begins meanwhile
	defer s.gate.Unlock()
	if err := s.RefuseCaptured("making an allocation ready", p.lease); err != nil {
		return err
	}
	if err := s.port.EventRecord(p.event, s.handle); err != nil {
		return err
	}
	p.state.Store(recorded)
	return nil
}

// wasRecorded reports whether the deferred record has been made. What is enqueued on
// its stream before the call lies before the point if it has not been.
func (p *Point) wasRecorded() bool {
	p.mu.Lock() // not while it is being recorded
	defer p.mu.Unlock()
	return !p.IsDeferred()
}

// flushOthers makes the deferred records of the dependencies; no block and no stream
// may be locked.
func (plan *Plan) flushOthers() error {
	for i := range plan.deps {
		if p := plan.deps[i].point; p.IsDeferred() && !p.needsNoWait() {
			if err := p.recordDeferred(); err != nil {
				return err
			}
		}
	}
	return nil
}
