package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/size"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// The rules of degraded health. A reason that has been seen holds for some minutes
// after it was last seen, so that no state changes more often.
const (
	// interval is how often the numbers are looked at.
	interval = time.Second
	// A refusal storm is stormRefusals refused requests, and one of stormShare
	// of all, within stormTime. Requests larger than the budget are not among
	// those refused: no client makes a runtime ill by asking for too much.
	stormTime     = 10 * time.Second
	stormRefusals = 10
	stormShare    = 100
	// driftTime, waitTime and limitTime are how long a drift, callers waiting for a
	// stream, and a limit of others with nothing left must be seen without a break.
	driftTime = time.Minute
	// beyondTime is how long more must be held than may be: what was held when a limit was lowered
	// goes back sooner, if it is free.
	beyondTime = time.Minute
	waitTime   = 5 * time.Second
	limitTime  = 5 * time.Second
)

// Rules turn readings into reasons. They belong to one goroutine.
type Rules struct {
	hold time.Duration
	last Reading
	// storm is the reading that refusals are counted from, at stormFrom.
	storm     Reading
	stormFrom time.Time
	// driftFrom, waitFrom, limitFrom and beyondFrom are since when there is one; zero if there is
	// none.
	driftFrom, waitFrom, limitFrom, beyondFrom time.Time
	reasons                                    map[string]*observed
	notes                                      []core.HealthSign
}

// observed is a reason that was seen; count is how many events it had since it began.
type observed struct {
	sign  core.HealthSign
	last  time.Time
	count uint64
}

// NewRules returns rules by which a reason holds for that time after it was last
// seen.
func NewRules(hold time.Duration) *Rules {
	return &Rules{hold: hold, reasons: map[string]*observed{}}
}

// Look takes a reading and returns the reasons that hold, gravest first. Notes are then those of
// the same reading.
func (r *Rules) Look(now Reading, at time.Time) []core.HealthSign {
	r.lookAtCounts(now, at)
	r.lookAtLevels(now, at)
	r.lookAtRefusals(now, at)
	r.last = now
	r.notes = r.note(now, at)
	return r.holding(at)
}

// Notes are those of the last look.
func (r *Rules) Notes() []core.HealthSign { return r.notes }

// note says what holds now and is no reason to be degraded. A note holds while it is seen, and
// since the first look of those that saw it without a break.
func (r *Rules) note(now Reading, at time.Time) (notes []core.HealthSign) {
	for _, n := range []struct {
		name      string
		count     int
		one, many string
	}{
		{names.HealthNoteWaiting, now.JobsWaiting, "job waits for memory of the budget",
			"jobs wait for memory of the budget"},
		{names.HealthNoteLearning, now.JobsLearning,
			"job has a guess reserved or waits for it: what its name needs is being learned",
			"jobs have a guess reserved or wait for it: what their names need is being learned"},
	} {
		if n.count == 0 {
			continue
		}
		since := at
		if i := slices.IndexFunc(r.notes, func(s core.HealthSign) bool { return s.Reason == n.name }); i >= 0 {
			since = r.notes[i].Since
		}
		notes = append(notes, core.HealthSign{Reason: n.name, Text: plural(uint64(n.count), n.one, n.many), Since: since})
	}
	return notes
}

func (r *Rules) lookAtCounts(now Reading, at time.Time) {
	for _, c := range []struct {
		reason    string
		was, is   uint64
		applies   bool
		one, many string
	}{
		{names.HealthFindings, r.last.Findings, now.Findings, true, "finding", "findings"},
		{names.HealthGuardGaps, r.last.Unguarded, now.Unguarded, now.Guarding, "block not guarded or not checked", "blocks not guarded or not checked"},
		{names.HealthTelemetryLoss, r.last.Lost, now.Lost, true, "record, incident or span lost", "records, incidents or spans lost"},
		{names.HealthLedgerDrift, r.last.Underflows, now.Underflows, true, "byte counter taken below zero", "byte counters taken below zero"},
	} {
		if c.applies && c.is > c.was {
			o := r.seen(c.reason, at)
			o.count += c.is - c.was
			o.sign.Text = plural(o.count, c.one, c.many)
		}
	}
}

func (r *Rules) lookAtLevels(now Reading, at time.Time) {
	if now.Poisoned > 0 {
		r.seen(names.HealthPoisonedBlocks, at).sign.Text = plural(now.Poisoned, "block could not be fenced", "blocks could not be fenced")
	}
	if lasts(&r.driftFrom, now.Drift != 0, at, driftTime) {
		r.seen(names.HealthLedgerDrift, at).sign.Text = fmt.Sprintf("the books less the pool's are %d bytes", now.Drift)
	}
	if lasts(&r.waitFrom, now.Waiting > 0, at, waitTime) {
		r.seen(names.HealthStreamsExhausted, at).sign.Text = fmt.Sprintf("every stream is leased, and %s", plural(uint64(now.Waiting), "caller waits", "callers wait"))
	}
	if lasts(&r.limitFrom, now.Exhausted != "", at, limitTime) {
		r.seen(names.HealthMemoryLimit, at).sign.Text = "nothing is left of the limit in " + now.Exhausted
	}
	if lasts(&r.beyondFrom, now.Beyond > 0, at, beyondTime) {
		r.seen(names.HealthMemoryLimit, at).sign.Text = size.Of(now.Beyond) + " more of the device than the budget are held"
	}
}

// lasts reports whether what is has been so for d, of which from keeps the
// beginning.
func lasts(from *time.Time, is bool, at time.Time, d time.Duration) bool {
	switch {
	case !is:
		*from = time.Time{}
	case from.IsZero():
		*from = at
	}
	return is && at.Sub(*from) >= d
}

func (r *Rules) lookAtRefusals(now Reading, at time.Time) {
	refused, asked := now.Refusals-r.storm.Refusals, now.Requests-r.storm.Requests
	if refused >= stormRefusals && refused*stormShare >= asked {
		r.seen(names.HealthRefusalStorm, at).sign.Text = fmt.Sprintf("%d of %d requests refused within %v", refused, asked, stormTime)
	}
	if at.Sub(r.stormFrom) >= stormTime {
		r.storm, r.stormFrom = now, at
	}
}

func (r *Rules) seen(reason string, at time.Time) *observed {
	o := r.reasons[reason]
	if o == nil {
		o = &observed{sign: core.HealthSign{Reason: reason, Since: at}}
		r.reasons[reason] = o
	}
	o.last = at
	return o
}

func (r *Rules) holding(at time.Time) []core.HealthSign {
	var signs []core.HealthSign
	for reason, o := range r.reasons {
		if at.Sub(o.last) > r.hold {
			delete(r.reasons, reason)
			continue
		}
		signs = append(signs, o.sign)
	}
	gravity := func(s core.HealthSign) int { return slices.Index(names.HealthReasons[:], s.Reason) }
	slices.SortFunc(signs, func(a, b core.HealthSign) int { return gravity(a) - gravity(b) })
	return signs
}

// plural is "1 finding" or "2 findings".
func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Reading is what the runtime's own numbers say at one moment.
type Reading struct {
	// These only grow: findings that degrade, see [Degrading]; requests for memory
	// and those refused for want of it; byte counters that went below zero; blocks
	// that the guard did not guard or check; and records, incidents and spans lost.
	Findings, Requests, Refusals, Underflows, Unguarded, Lost uint64
	// Poisoned is blocks that could not be fenced, Drift the bytes of the books less
	// those of the pool.
	Poisoned uint64
	Drift    int64
	// Exhausted names a limit that others set and of which nothing is left.
	Exhausted string
	// Beyond is how many bytes more are held of the device than may be.
	Beyond uint64
	// Guarding is whether the guard guards blocks.
	Guarding bool
	// Waiting is callers that wait while every stream is leased.
	Waiting int
	// JobsWaiting is jobs that wait for their reservation, and JobsLearning those whose reservation
	// is a guess. Both are for notes.
	JobsWaiting, JobsLearning int
}

// Sources are what the parts of a runtime say of themselves at one moment.
type Sources struct {
	Stats      core.Stats
	Guard      debugguard.GuardStats
	Streams    readings.StreamStats
	Operations metrics.Operations
	Findings   *telemetry.Findings
	// Drift, Exhausted and Lost are those of [Reading].
	Drift     int64
	Exhausted string
	Lost      uint64
	// JobsWaiting and JobsLearning are those of [Reading].
	JobsWaiting, JobsLearning int
}

// Reading is what the rules look at of all that.
func (s Sources) Reading() Reading {
	now := Reading{
		Findings:   Degrading(s.Findings),
		Unguarded:  s.Guard.Unchecked + s.Guard.Unguarded,
		Guarding:   s.Guard.Mode >= debugguard.Sample, // what is turned down leaves out what it had begun
		Underflows: s.Stats.Underflows,
		Poisoned:   s.Stats.Poisoned,
		Drift:      s.Drift,
		Exhausted:  s.Exhausted,
		Beyond:     beyond(&s.Stats),
		Lost:       s.Lost,

		JobsWaiting: s.JobsWaiting, JobsLearning: s.JobsLearning,
	}
	for _, op := range []oplog.Op{oplog.OpAllocate, oplog.OpReserve} {
		now.Requests += s.Operations.Calls(op)
	}
	now.Refusals = s.Operations.Refusals(metrics.ReasonOutOfBudget) + s.Operations.Refusals(metrics.ReasonOutOfMemory)
	if s.Streams.Leased >= s.Streams.Max {
		now.Waiting = s.Streams.Waiting
	}
	return now
}

// beyond is how many bytes more are held than may be.
func beyond(st *core.Stats) uint64 {
	held := st.Reserved + st.Isolated
	if st.HeldLimit == 0 {
		return 0
	}
	return held - min(held, st.HeldLimit)
}

// Degrading counts the findings but that of a lost device, which has a reason of
// its own, and those that harmed nothing or are not proven. It takes one
// snapshot: of two, the second may know of a loss that the first does not.
func Degrading(f *telemetry.Findings) (n uint64) {
	for kind, count := range f.Harmful() {
		if kind != names.FindingStickyError && kind != names.FindingIllegalAccess {
			n += count
		}
	}
	return n
}
