package metrics

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// Calls counts the calls of a layer by operation and result, and how long they
// took. The zero Calls is ready. It is safe for concurrent use.
//
// A call that is not timed is one atomic add to a stripe, which goroutines on other streams do not write
// unless there are very many, and one that is takes the lock of the operation there; failures are rare and share one cell
// each. Nothing here reads a clock, or allocates but for a stripe's first call and sampled traces.
type Calls struct {
	stripes   [stripes]atomic.Pointer[stripe]
	failed    [operations][reasons]atomic.Uint64
	exemplars exemplars
	// failures are the newest calls that failed of which a span was exported.
	failures [operations][reasons]atomic.Pointer[exemplar]

	lanesMu sync.Mutex
	lanes   []*LaneCalls // of the path
}

const (
	// stripes is how many streams with consecutive numbers have one each. One takes
	// 26 KiB, from its first call on.
	stripes = 64
	// operations is one more than the last operation that a caller makes;
	// oplog.OpRefusal and oplog.OpRelease are events, not calls.
	operations = int(oplog.OpDrain) + 1
)

// stripe has the durations of the calls on some streams, by operation.
type stripe [operations]opCells

// Note counts one call of op on a stream, if it has one, that took some time and returned
// err. span is the exported one that tells of it, if there is one. It does not block.
func (c *Calls) Note(op oplog.Op, stream core.StreamID, took time.Duration, span core.SpanRef, err error) {
	o := c.of(op, stream)
	o.mu.Lock()
	o.add(uint64(took), grid.cellOf(uint64(took)), 1)
	o.mu.Unlock()
	c.NoteEnd(op, took, span, err)
}

// Skip counts one call of op that is not timed, as one that took as long as the last that was, and reports
// true; it reports false for one call in oneIn on a stream, which is to be timed and given to NoteSample. NoteEnd
// follows if the skipped call fails.
func (c *Calls) Skip(op oplog.Op, stream core.StreamID) bool {
	left := &c.of(op, stream).left
	if left.Load() <= 0 {
		return false
	}
	left.Add(-1)
	return true
}

// NoteSample is Note of a call that was not skipped: those that are skipped next count as it does.
func (c *Calls) NoteSample(op oplog.Op, stream core.StreamID, took time.Duration, span core.SpanRef, err error) {
	o := c.of(op, stream)
	o.mu.Lock()
	o.addSkipped(o.left.Swap(oneIn - 1))
	o.granted = oneIn - 1
	o.note(true, took)
	o.mu.Unlock()
	c.NoteEnd(op, took, span, err)
}

// oneIn is how many calls there are for one that is timed, where not all are.
const oneIn = 16

func (c *Calls) of(op oplog.Op, stream core.StreamID) *opCells {
	s := c.stripes[stream%stripes].Load()
	if s == nil {
		s = c.first(stream)
	}
	return &s[op]
}

// first is the stripe of a stream's first call.
func (c *Calls) first(stream core.StreamID) *stripe {
	at := &c.stripes[stream%stripes]
	at.CompareAndSwap(nil, new(stripe))
	return at.Load()
}

// NoteEnd is what Note does of a call beside counting it.
func (c *Calls) NoteEnd(op oplog.Op, took time.Duration, span core.SpanRef, err error) {
	if err != nil {
		c.failed[op][ReasonOf(err)].Add(1) // after the call: see Snapshot
	}
	if !span.IsZero() {
		x := &exemplar{span: span, took: took, at: time.Now()}
		c.exemplars[op][grid.classic[grid.cellOf(uint64(took))]].Store(x)
		if err != nil {
			c.failures[op][ReasonOf(err)].Store(x)
		}
	}
}

// Snapshot sums the stripes: the calls since an instant, and how many failed ones
// left no span because there were too many of them. Each counter is exact; their
// combination is exact while no call is under way. Failures are read before the
// calls that they are part of, so that there are never more of them.
func (c *Calls) Snapshot(since time.Time, spansDropped uint64) Operations {
	o := Operations{since: since, spansDropped: spansDropped, latencies: make([]latency, operations)}
	for op := range operations {
		for reason := range reasons {
			o.failed[op][reason] = c.failed[op][reason].Load()
			o.failures[op][reason] = c.failures[op][reason].Load()
		}
		o.latencies[op].exemplars = c.exemplars.of(op)
		for i := range c.stripes {
			if s := c.stripes[i].Load(); s != nil {
				held := s[op].now()
				o.latencies[op].add(&held)
			}
		}
	}
	c.addLanes(o.latencies)
	return o
}

// Operations is a snapshot of [Calls]: the calls by operation and result, and how
// long they took. It is a value and shares nothing.
type Operations struct {
	failed    [operations][reasons]uint64
	failures  [operations][reasons]*exemplar
	latencies []latency
	// spansDropped and since are what Snapshot was told.
	spansDropped uint64
	since        time.Time
}

// Succeeded is the number of calls of op that returned no error.
func (o *Operations) Succeeded(op oplog.Op) uint64 {
	n := o.Calls(op)
	for reason := range Reason(reasons) {
		n -= o.Failed(op, reason)
	}
	return n
}

// Calls is the number of calls of op, whatever their result.
func (o *Operations) Calls(op oplog.Op) uint64 {
	return o.latencyOf(op).calls
}

// Failed is the number of calls of op that returned an error of that reason.
func (o *Operations) Failed(op oplog.Op, reason Reason) uint64 {
	if int(op) >= operations || int(reason) >= reasons {
		return 0
	}
	return o.failed[op][reason]
}

// Refusals is the number of requests for memory, allocations and
// reservations, that were refused for that reason. It counts what callers
// were told: a refusal that a layer below cured is not among them.
func (o *Operations) Refusals(reason Reason) uint64 {
	return o.Failed(oplog.OpAllocate, reason) + o.Failed(oplog.OpReserve, reason)
}

// LaneCalls counts the allocations and frees that were served by the quick path of one
// lane, whose lock guards it: so counting one writes no word that others write and needs no
// atomic operation.
type LaneCalls struct {
	lane     *path.Lane
	allocate quickCells
	free     quickCells
}

// quickCells are the durations of one operation, which a lock guards.
type quickCells struct {
	cells       [cells]uint64
	nanoseconds uint64
	// last is how long the last timed call took, and in which cell that is: calls that are not timed count as it.
	last     uint64
	lastCell int
}

// OfLane returns counters of the calls that one lane serves, for good. It is called once for
// each lane.
func (c *Calls) OfLane(lane *path.Lane) *LaneCalls {
	l := &LaneCalls{lane: lane}
	c.lanesMu.Lock()
	defer c.lanesMu.Unlock()
	c.lanes = append(c.lanes, l)
	return l
}

// NoteAllocate counts an allocation that succeeded, in no sampled trace, and took some time if that was
// taken. The lane must be locked.
func (l *LaneCalls) NoteAllocate(timed bool, took time.Duration) { l.allocate.note(timed, took) }

// NoteDeallocate is NoteAllocate for a free.
func (l *LaneCalls) NoteDeallocate(timed bool, took time.Duration) { l.free.note(timed, took) }

func (q *quickCells) note(timed bool, took time.Duration) {
	if timed {
		q.last, q.lastCell = uint64(took), grid.cellOf(uint64(took))
	}
	q.add(q.last, q.lastCell, 1)
}

// add counts n calls that took so long each.
func (q *quickCells) add(took uint64, cell int, n uint64) {
	q.cells[cell] += n
	q.nanoseconds += n * took
}

// addLanes adds what the lanes have counted.
func (c *Calls) addLanes(latencies []latency) {
	c.lanesMu.Lock()
	all := slices.Clone(c.lanes)
	c.lanesMu.Unlock()
	for _, l := range all {
		l.lane.Lock()
		allocate, free := l.allocate, l.free
		l.lane.Unlock()
		latencies[oplog.OpAllocate].add(&allocate)
		latencies[oplog.OpDeallocate].add(&free)
	}
}

func (l *latency) add(from *quickCells) {
	for i, n := range from.cells {
		l.cells[i] += n
		l.calls += n
	}
	l.nanoseconds += from.nanoseconds
}

// opCells are the durations of one operation on one stripe.
type opCells struct {
	// left is how many calls more may be skipped, less than 0 where several were at once, and granted how many might when
	// the last was timed: what lacks of that is not in quickCells.
	left atomic.Int64
	mu   sync.Mutex // guards what follows
	quickCells
	granted int64
}

// addSkipped counts the calls that were skipped while left came down to n; the lock must be held.
func (o *opCells) addSkipped(n int64) {
	o.add(o.last, o.lastCell, uint64(o.granted-n))
	o.granted = n
}

// now is what was counted so far.
func (o *opCells) now() quickCells {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addSkipped(o.left.Load())
	return o.quickCells
}

// latency is a snapshot of the durations of one operation.
type latency struct {
	cells       [cells]uint64
	calls       uint64
	nanoseconds uint64
	// exemplars are of traced calls, oldest first.
	exemplars []exemplar
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

// latencyOf is what is known of op's durations: nothing in a zero Operations.
func (o *Operations) latencyOf(op oplog.Op) *latency {
	if int(op) >= len(o.latencies) {
		return &latency{}
	}
	return &o.latencies[op]
}
