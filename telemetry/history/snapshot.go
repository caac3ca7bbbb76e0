package history

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/fencepost-gpu/fencepost/core"
)

// page is the unit in which segments are drawn. It is that of a driver's pool;
// where the pool's own segments begin and end the driver tells nobody.
const page = 2 << 20

// snapshotWriter writes a history as PyTorch's memory snapshot. What it says
// in whose words is in the package comment.
type snapshotWriter struct {
	*pickler
	history *loaded
	// seen is all addresses of each device's history, in pages; left is what
	// is held at its end.
	seen map[int][]extent
	left map[int][]*replayed
}

func newSnapshotWriter(w io.Writer, h *loaded) *snapshotWriter {
	return &snapshotWriter{pickler: newPickler(w), history: h, seen: map[int][]extent{}, left: map[int][]*replayed{}}
}

func (s *snapshotWriter) writeAll() error {
	s.beginDict()
	s.key("device_traces")
	s.traces()
	s.key("segments")
	s.segments()
	s.key("allocator_settings")
	s.beginDict()
	s.field("PYTORCH_CUDA_ALLOC_CONF", "")
	s.key("expandable_segments")
	s.bool(false)
	s.endDict()
	s.key("external_annotations")
	s.beginList()
	s.endList()
	s.endDict()
	return s.end()
}

func (s *snapshotWriter) field(key, value string) { s.key(key); s.word(value) }

func (s *snapshotWriter) number(key string, n uint64) { s.key(key); s.uint(n) }

// traces writes a list for each ordinal up to the highest.
func (s *snapshotWriter) traces() {
	s.beginList()
	ordinal := 0
	for _, b := range s.history.books {
		for ; ordinal < b.ordinal; ordinal++ {
			s.beginList()
			s.endList()
			s.item()
		}
		s.beginList()
		s.trace(b)
		s.endList()
		s.item()
		ordinal++
	}
	s.endList()
}

// trace replays a device. The blocks that were there from the beginning have
// no entry: who draws the trace finds them where they are freed, or among the
// blocks of a segment.
func (s *snapshotWriter) trace(b *book) {
	var seen []extent
	freed := map[core.Generation]bool{} // requested in the trace, and not completed
	r := newReplay(b, s.history.events, func(step step, block *memory, e *core.Event) {
		if step == stepAllocate {
			seen = merge(append(seen, extent{block.id.Ptr / page * page, (block.end() + page - 1) / page * page}))
		}
		switch {
		case e == nil && step == stepRelease && freed[block.id.Generation]: // another has its memory at the end
			s.entry(step, block, s.history.end)
		case e == nil:
		case step == stepRefuse:
			s.refusal(block, e)
		case e.Op == core.OpAllocate:
			s.entry(step, block, s.history.after(e))
		default:
			s.entry(step, block, s.history.begin(e))
			freed[block.id.Generation] = step == stepFree
		}
	})
	s.seen[b.ordinal], s.left[b.ordinal] = seen, r.left()
	for _, block := range s.left[b.ordinal] {
		if !block.freed && s.stateOf(block) != core.Live { // above the log, and nobody says when
			s.entry(stepFree, &block.memory, s.history.end)
		}
	}
	s.beginDict()
	s.field("action", "snapshot")
	s.number("addr", 0)
	s.number("size", 0)
	s.number("stream", 0)
	s.when(s.history.end)
	s.field("category", "unknown") // the page wants one, if there are others
	s.endDict()
	s.item()
}

var actions = [...]string{stepAllocate: "alloc", stepFree: "free_requested", stepRelease: "free_completed", stepRefuse: "oom"}

func (s *snapshotWriter) entry(step step, block *memory, at int64) {
	s.beginDict()
	s.field("action", actions[step])
	s.number("addr", block.id.Ptr)
	s.number("stream", uint64(block.id.AllocStream))
	s.key("user_metadata")
	s.text(fmt.Sprintf("generation %v, %d bytes requested", block.id.Generation, block.requested))
	s.finishEntry(block, at)
}

func (s *snapshotWriter) refusal(request *memory, e *core.Event) {
	s.beginDict()
	s.field("action", actions[stepRefuse])
	s.number("device_free", remaining(e.Err))
	s.number("stream", uint64(e.Stream))
	if e.Err != nil {
		s.key("user_metadata")
		s.text(e.Err.Error())
	}
	s.finishEntry(request, s.history.begin(e))
}

// finishEntry writes what all entries have.
func (s *snapshotWriter) finishEntry(block *memory, at int64) {
	s.number("size", max(block.bytes, block.requested))
	s.when(at)
	s.field("category", string(block.tag))
	s.field("compile_context", "N/A")
	s.key("frames")
	s.frames(block)
	s.endDict()
	s.item()
}

func (s *snapshotWriter) when(at int64) {
	s.key("time_us")
	s.int(s.history.origin.UnixMicro() + at/1000)
}

// remaining is what a budget had left when it refused; 0 if it is not known.
func remaining(err error) uint64 {
	if e, ok := errors.AsType[*core.OutOfBudgetError](err); ok {
		return min(e.Remaining, math.MaxInt64)
	}
	return 0
}

// frames writes where a block was allocated: its tag, and its stack if that
// is kept. Equal ones are written once.
func (s *snapshotWriter) frames(block *memory) {
	stack := s.history.listed[block.id.Generation].stack
	s.once(fmt.Sprint("frames:", block.tag, stack), func() {
		s.beginList()
		s.frame(string(block.tag), "tag", 0)
		for _, f := range stack.Frames() {
			s.frame(f.Function, f.File, f.Line)
		}
		s.endList()
	})
}

func (s *snapshotWriter) frame(name, file string, line int) {
	s.beginDict()
	s.field("name", name)
	s.field("filename", file)
	s.number("line", uint64(line))
	s.endDict()
	s.item()
}
