package history

import "github.com/fencepost-gpu/fencepost/core"

// segments are the ranges of addresses that the history has seen, each with its
// blocks: what is held at the end, and the gaps in between.
func (s *snapshot) segments(add func(any)) {
	for _, b := range s.history.books {
		left := s.left[b.ordinal]
		for _, e := range s.seen[b.ordinal] {
			n := 0
			for n < len(left) && left[n].id.Ptr < e.to {
				n++
			}
			add(s.segment(b.ordinal, e, left[:n]))
			left = left[n:]
		}
	}
}

func (s *snapshot) segment(ordinal int, e extent, blocks []*replayed) dict {
	var allocated, active, requested uint64
	for _, b := range blocks {
		active += b.bytes
		if s.stateOf(b) == core.Live {
			allocated += b.bytes
			requested += b.requested
		}
	}
	return dict{
		{"device", ordinal},
		{"address", e.from}, {"total_size", e.to - e.from},
		{"allocated_size", allocated}, {"active_size", active}, {"requested_size", requested},
		{"stream", 0},
		{"segment_type", word("large")}, {"segment_pool_id", pair{}}, {"is_expandable", false},
		{"frames", none},
		{"blocks", list(func(add func(any)) { s.blocks(e, blocks, add) })},
	}
}

func (s *snapshot) blocks(of extent, blocks []*replayed, add func(any)) {
	at := of.from
	gap := func(to uint64) {
		if at != to {
			add(dict{{"address", at}, {"size", to - at}, {"requested_size", 0}, {"state", word("inactive")}, {"frames", none}})
		}
	}
	for _, b := range blocks {
		gap(b.id.Ptr)
		state := word("active_pending_free")
		if s.stateOf(b) == core.Live {
			state = "active_allocated"
		}
		add(dict{{"address", b.id.Ptr}, {"size", b.bytes}, {"requested_size", b.requested}, {"state", state}, s.frames(&b.memory)})
		at = b.end()
	}
	gap(of.to)
}

// stateOf is the state of a block at the end. A guard above the log holds
// blocks back that the log knows as live.
func (s *snapshot) stateOf(b *replayed) core.BlockState {
	l, listed := s.history.listed[b.id.Generation]
	switch {
	case b.freed:
		return core.Retired
	case listed:
		return l.state
	}
	return core.Live
}
