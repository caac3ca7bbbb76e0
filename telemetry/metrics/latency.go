package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// opCells are the durations of one operation on one stripe.
type opCells struct {
	cells       [cells]atomic.Uint64
	nanoseconds atomic.Uint64
}

// latency is a snapshot of the durations of one operation.
type latency struct {
	cells       [cells]uint64
	calls       uint64
	nanoseconds uint64
	// exemplars are of traced calls, oldest first.
	exemplars []exemplar
}

func (l *latency) merge(from *opCells) {
	for i := range from.cells {
		n := from.cells[i].Load()
		l.cells[i] += n
		l.calls += n
	}
	l.nanoseconds += from.nanoseconds.Load()
}

// exemplar is one call of which a span was exported.
type exemplar struct {
	span core.SpanRef
	took time.Duration
	at   time.Time
}

// exemplars are the newest traced calls, one for each classic bucket of each
// operation. They are kept for calls with a span only, which allocate anyway.
type exemplars [operations][classicBounds + 1]atomic.Pointer[exemplar]

func (e *exemplars) store(op core.Op, cell int, x *exemplar) { e[op][grid.classic[cell]].Store(x) }

// newer is the newer of two, either of which may be nil.
func newer(a, b *exemplar) *exemplar {
	if a == nil || b != nil && b.at.After(a.at) {
		return b
	}
	return a
}

func (e *exemplars) of(op int) (newest []exemplar) {
	for i := range e[op] {
		if x := e[op][i].Load(); x != nil {
			newest = append(newest, *x)
		}
	}
	slices.SortFunc(newest, func(a, b exemplar) int { return a.at.Compare(b.at) })
	return newest
}

// latencyOf is what is known of op's durations; nothing in a zero Operations.
func (o *Operations) latencyOf(op core.Op) *latency {
	if int(op) >= len(o.latencies) {
		return &latency{}
	}
	return &o.latencies[op]
}
