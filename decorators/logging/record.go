package logging

import (
	"cmp"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// Record is one line of the log. It is a value; what it points to (texts and
// the error) is never changed.
type Record struct {
	// Event is the operation. See [oplog.Event] for its fields and units.
	Event oplog.Event
	// Seq orders the records of the process; see the package comment. It
	// starts at 1, and is 0 where rings are the only sinks.
	Seq uint64
}

// Records are some of the log, in an order. The slice is its holder's.
type Records []Record

// Events is the events of the records.
func (all Records) Events() []oplog.Event {
	events := make([]oplog.Event, len(all))
	for i := range all {
		events[i] = all[i].Event
	}
	return events
}

// WriteJSON writes the records to w as JSON lines, as [NewJSONSink] does; see the
// package comment. It needs memory for a few hundred lines, however many there are.
func (all Records) WriteJSON(w io.Writer) error {
	lines := newJSONLines(w, processStart)
	for some := range slices.Chunk(all, chunk) {
		if _, err := lines.write(some); err != nil {
			return err
		}
	}
	return nil
}

// outcome is the little of an event by which sinks choose what they take. It
// is passed by value: a pointer to the record would move it to the heap.
type outcome struct {
	op               oplog.Op
	failed, relieved bool
}

func outcomeOf(e *oplog.Event) outcome {
	return outcome{op: e.Op, failed: e.Err != nil, relieved: e.Relieved}
}

// sequence hands out sequence numbers. It stands alone on its cache line,
// because every goroutine that logs writes to it.
type sequence struct {
	_    [64]byte
	last atomic.Uint64
	_    [56]byte
}

// next returns the next number, 0 without a sequence.
func (s *sequence) next() uint64 {
	if s == nil {
		return 0
	}
	return s.last.Add(1)
}

// before orders records by number, or, where they have none, by time: an
// allocation by its end and everything else by its beginning, so that a reused
// address is freed before it is allocated.
func (rec *Record) before(other *Record) int {
	if rec.Seq != 0 && other.Seq != 0 {
		return cmp.Compare(rec.Seq, other.Seq)
	}
	return rec.instant().Compare(other.instant())
}

func (rec *Record) instant() time.Time {
	if rec.Event.Op == oplog.OpAllocate {
		return rec.Event.Time.Add(rec.Event.Duration)
	}
	return rec.Event.Time
}

// lastSequence numbers the records of all resources of the process, so that
// resources may share a sink.
var lastSequence sequence

// processStart is the zero of mono_ns.
var processStart = monotime.Instant(0).Time()
