package history

import "github.com/fencepost-gpu/fencepost/core"

// segments writes the ranges of addresses that the history has seen, each
// with its blocks: what is held at the end, and the gaps in between.
func (s *snapshotWriter) segments() {
	s.beginList()
	for _, b := range s.history.books {
		left := s.left[b.ordinal]
		for _, e := range s.seen[b.ordinal] {
			n := 0
			for n < len(left) && left[n].id.Ptr < e.to {
				n++
			}
			s.segment(b.ordinal, e, left[:n])
			s.item()
			left = left[n:]
		}
	}
	s.endList()
}

func (s *snapshotWriter) segment(ordinal int, e extent, blocks []*replayed) {
	var allocated, active, requested uint64
	for _, b := range blocks {
		active += b.bytes
		if s.stateOf(b) == core.Live {
			allocated += b.bytes
			requested += b.requested
		}
	}
	s.beginDict()
	s.number("device", uint64(ordinal))
	s.number("address", e.from)
	s.number("total_size", e.to-e.from)
	s.number("allocated_size", allocated)
	s.number("active_size", active)
	s.number("requested_size", requested)
	s.number("stream", 0)
	s.field("segment_type", "large")
	s.key("segment_pool_id")
	s.pair(0, 0)
	s.key("is_expandable")
	s.bool(false)
	s.key("frames")
	s.beginList()
	s.endList()
	s.key("blocks")
	s.beginList()
	at := e.from
	for _, b := range blocks {
		s.gap(at, b.id.Ptr)
		s.block(b)
		s.item()
		at = b.end()
	}
	s.gap(at, e.to)
	s.endList()
	s.endDict()
}

// stateOf is the state of a block at the end. A guard above the log holds
// blocks back that the log knows as live.
func (s *snapshotWriter) stateOf(b *replayed) core.BlockState {
	l, listed := s.history.listed[b.id.Generation]
	switch {
	case b.freed:
		return core.Retired
	case listed:
		return l.state
	}
	return core.Live
}

func (s *snapshotWriter) gap(from, to uint64) {
	if from == to {
		return
	}
	s.beginDict()
	s.number("address", from)
	s.number("size", to-from)
	s.number("requested_size", 0)
	s.field("state", "inactive")
	s.key("frames")
	s.beginList()
	s.endList()
	s.endDict()
	s.item()
}

func (s *snapshotWriter) block(b *replayed) {
	s.beginDict()
	s.number("address", b.id.Ptr)
	s.number("size", b.bytes)
	s.number("requested_size", b.requested)
	if s.stateOf(b) == core.Live {
		s.field("state", "active_allocated")
	} else {
		s.field("state", "active_pending_free")
	}
	s.key("frames")
	s.frames(&b.memory)
	s.endDict()
}
