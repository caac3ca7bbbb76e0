package cuda

import "github.com/fencepost-gpu/fencepost/core"

// A use is recorded after its work was enqueued. If the stream has begun to
// capture since, no event can be recorded, and the use must not be lost: what
// comes next on the block would not be ordered after it. So it is announced like
// a launch, which keeps conflicting work and the free away, and the reap that
// finds the capture ended records it.

// holdUse announces the use if its stream is capturing, or if nobody can tell.
// The caller has entered the stream. If the use cannot be announced either, the
// block is poisoned.
func (r *AsyncResource) holdUse(s *stream, id core.BlockID, lease core.StreamID) (held bool, err error) {
	s.mu.Lock() // what it says of the runtime's captures is exact
	cause := s.recordable()
	s.mu.Unlock()
	if cause == nil {
		return false, nil
	}
	in, err := core.OpenIntent(r, core.UseRequest{Stream: lease, Launch: "recorded use", Uses: []core.Use{{Block: id, Access: core.ReadWrite}}})
	if err != nil {
		return true, err
	}
	if err := r.announceUse(s, in); err != nil {
		in.Recycle()
		return true, err
	}
	s.open.Add(1) // until it is fenced
	r.held.end(heldEnd{in: in})
	return true, heldError("RecordUse", lease, cause)
}

// announceUse announces the only use of in on its block.
func (r *AsyncResource) announceUse(s *stream, in *core.Intent) error {
	u := &in.Uses[0]
	e, eventErr := s.announce(in)
	b, err := r.find("RecordUse", u.Block, in.Stream)
	if err != nil { // freed meanwhile
		if e != nil {
			e.releaseMany(2)
		}
		return err
	}
	defer b.mu.Unlock()
	if eventErr != nil {
		s.books.fails.Add(1)
		r.streams.table.poison(b)
		return detail(eventErr, "the use could not be fenced: its block is poisoned and can be neither used nor reused until the device is reset")
	}
	e.launch, u.Handle, u.Tag = 0, b, b.core.Tag
	b.accesses = append(b.accesses, access{event: e, kind: u.Access})
	return nil
}

// endHeld closes the intent of what was held back and is fenced now.
func (r *AsyncResource) endHeld(in *core.Intent) {
	if in.Handle.(*event).launch == 0 { // a recorded use is no launch
		r.endLaunch(in, recorded)
		return
	}
	r.launched(in)
}
