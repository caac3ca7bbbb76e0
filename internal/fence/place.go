package fence

// Memory that is freed on a stream may be used by whatever comes after all that was
// enqueued there before. Its place in the stream's order is a number, and no event is
// recorded for it: most of it is used again on the same stream, where it comes after by
// itself.

// Behind is the place behind everything that was enqueued on the stream until now, work
// that nobody declared included: the number of the next point, which is not recorded yet.
// The stream must be locked.
func (s *Stream) Behind() uint64 { return s.seq + 1 }

// Covers reports whether what is enqueued on s from now on comes after a place of another
// stream, without a wait: s waited for something behind it, or the host knows the place to
// be completed. s must be locked.
func (s *Stream) Covers(other *Stream, place uint64) bool {
	if final := other.final.Load(); final != nil {
		// Nothing comes behind the final point, which may stand at the last place
		// if its stream was synchronised.
		place = min(place, final.seq)
		if final.state.Load() == synthetic && other.Completed() >= place {
			return true
		}
	}
	return s == other || s.clock.covers(other.slot, place) || !s.order.deviceOrder && other.Completed() >= place
}

// HasCompleted reports whether the host knows that the device has come to a place of the stream.
func (s *Stream) HasCompleted(place uint64) bool {
	if final := s.final.Load(); final != nil {
		place = min(place, final.seq)
	}
	return s.Completed() >= place
}
