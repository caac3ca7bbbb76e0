package history

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// page is the unit in which segments are drawn. It is that of a driver's pool;
// where the pool's own segments begin and end the driver does not tell.
const page = 2 << 20

// snapshot is a history as PyTorch's memory snapshot. What it says in whose words
// is in the package comment.
type snapshot struct {
	history *loaded
	// seen is all addresses of each device's history, in pages; left is what
	// is held at its end. Its trace finds them.
	seen map[int][]extent
	left map[int][]*replayed
}

// none is an empty list.
var none = list(func(func(any)) {})

func (h *loaded) writeSnapshot(w io.Writer) error {
	s := &snapshot{history: h, seen: map[int][]extent{}, left: map[int][]*replayed{}}
	p := newPickler(w)
	p.write(dict{
		{"device_traces", list(s.traces)},
		{"segments", list(s.segments)},
		{"allocator_settings", dict{{"PYTORCH_CUDA_ALLOC_CONF", word("")}, {"expandable_segments", false}}},
		{"external_annotations", none},
	})
	return p.end()
}

// traces are a list for each ordinal up to the highest.
func (s *snapshot) traces(add func(any)) {
	ordinal := 0
	for _, b := range s.history.books {
		for ; ordinal < b.ordinal; ordinal++ {
			add(none)
		}
		add(list(func(add func(any)) { s.trace(b, add) }))
		ordinal++
	}
}

// trace replays a device. The blocks that were there from the beginning have
// no entry: who draws the trace finds them where they are freed, or among the
// blocks of a segment.
func (s *snapshot) trace(b *book, add func(any)) {
	var seen []extent
	r := s.history.replay(b, func(step step, block *memory, at int64, e *oplog.Event) {
		if step == stepAllocate {
			seen = merge(append(seen, extent{block.id.Ptr / page * page, (block.end() + page - 1) / page * page}))
		}
		switch {
		case at == fromBeginning:
		case step == stepRefuse:
			add(s.refusal(block, e, at))
		default:
			add(s.entry(step, block, at))
		}
	})
	s.seen[b.ordinal], s.left[b.ordinal] = seen, r.left()
	for _, block := range s.left[b.ordinal] {
		if !block.freed && s.stateOf(block) != core.Live { // above the log, which does not say when
			add(s.entry(stepFree, &block.memory, s.history.end))
		}
	}
	add(dict{{"action", word("snapshot")}, {"addr", 0}, {"size", 0}, {"stream", 0}, s.when(s.history.end),
		{"category", word("unknown")}}) // the page wants one, if there are others
}

var actions = [...]word{stepAllocate: "alloc", stepFree: "free_requested", stepRelease: "free_completed", stepRefuse: "oom"}

func (s *snapshot) entry(step step, block *memory, at int64) dict {
	return s.complete(dict{{"action", actions[step]}, {"addr", block.id.Ptr}, {"stream", uint64(block.id.AllocStream)},
		{"user_metadata", text(fmt.Sprintf("generation %v, %d bytes requested", block.id.Generation, block.requested))}}, block, at)
}

func (s *snapshot) refusal(request *memory, e *oplog.Event, at int64) dict {
	entry := dict{{"action", actions[stepRefuse]}, {"device_free", remaining(e.Err)}, {"stream", uint64(e.Stream)}}
	if e.Err != nil {
		entry = append(entry, item{"user_metadata", text(e.Err.Error())})
	}
	return s.complete(entry, request, at)
}

// complete adds what all entries have.
func (s *snapshot) complete(entry dict, block *memory, at int64) dict {
	return append(entry, item{"size", max(block.bytes, block.requested)}, s.when(at), item{"category", word(block.tag)},
		item{"compile_context", word("N/A")}, s.frames(block))
}

func (s *snapshot) when(at int64) item {
	return item{"time_us", s.history.origin.UnixMicro() + at/1000}
}

// remaining is what a budget had left when it refused; 0 if it is not known.
func remaining(err error) uint64 {
	if e, ok := errors.AsType[*core.OutOfBudgetError](err); ok {
		return min(e.Remaining, math.MaxInt64)
	}
	return 0
}

// frames is where a block was allocated: its tag, and its stack if that is kept.
func (s *snapshot) frames(block *memory) item {
	stack := s.history.listed[block.id.Generation].stack
	return item{"frames", shared{fmt.Sprint("frames:", block.tag, stack), func() any {
		return list(func(add func(any)) {
			add(frame(string(block.tag), "tag", 0))
			for _, f := range stack.Frames() {
				add(frame(f.Function, f.File, f.Line))
			}
		})
	}}}
}

func frame(name, file string, line int) dict {
	return dict{{"name", word(name)}, {"filename", word(file)}, {"line", line}}
}

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
