package core

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/size"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Health is how well a runtime is.
type Health struct {
	// OK is true while work is admitted: in the states ok and degraded.
	OK bool
	// State is a stable name, a constant of package core/names; empty is ok. The states, each
	// worse than the one before, are
	//
	//	ok        work is admitted, and nothing is known that should be looked into
	//	degraded  work is admitted, and an operator should look into the reasons
	//	closed    the runtime was closed, or is being closed; new work is refused
	//	poisoned  the device's context was lost; every call is refused, and only a new
	//	          process gets the device back. It stays so after Close
	State string
	// Reason says in words why the state is not ok.
	Reason string
	// Signs are the reasons by name, the gravest first; none if the state is
	// ok or closed. The slice is shared and must not be changed.
	Signs []HealthSign
	// Notes say by name what is no reason to be degraded, and explains why requests take long;
	// none if the state is closed or poisoned. The slice is shared and must not be changed. Only
	// the root package's Runtime has any.
	//
	//	waiting   jobs wait for their reservation of the budget
	//	learning  jobs wait or run on a guess, because nothing is known yet of what they need
	Notes []HealthSign
	// Err is the sticky error that lost the device, if that is the reason.
	Err error
}

// Health reports whether the runtime admits work. It makes no device call and
// takes no lock. A runtime of this package is never degraded: what makes it so
// is seen by the layers, which the root package's Runtime knows.
func (r *Runtime) Health() Health {
	if f := r.lost.Load(); f != nil {
		text := "the device was lost in " + f.op + ": " + legible.Kept(f.err).Error()
		return Health{State: names.HealthPoisoned, Reason: text, Err: f.err,
			Signs: []HealthSign{{Reason: names.HealthStickyError, Text: text, Since: f.at}}}
	}
	if r.closing.Load() {
		return Health{State: names.HealthClosed, Reason: "closed"}
	}
	return Health{OK: true, State: names.HealthOK}
}

// StickyErrors counts the sticky driver errors that the runtime has seen. The
// first loses the device; the calls refused because of it are not counted.
func (r *Runtime) StickyErrors() uint64 { return r.sticky.Load() }

// ReportSticky tells the runtime of a sticky error that was seen outside its
// own calls, by a kernel launch or a synchronise. Other errors are ignored.
func (r *Runtime) ReportSticky(op string, err error) { _ = r.observe(op, err) }

func (r *Runtime) lose(op string, err error) {
	r.refuses.Store(true)
	if !r.lost.CompareAndSwap(nil, &stickyFault{err: err, op: op, at: time.Now()}) {
		return
	}
	r.report(Finding{
		Kind: names.FindingStickyError, Err: err,
		Suspects: r.inFlight(err),
		Text: "the device's context is lost: " + legible.Kept(err).Error() +
			"; every call is refused from now on, restart the process to get the device back",
	})
}

// reportOutOfMemory reports an allocation that the budget admitted and the device could not serve:
// the budget is larger than what the device can give, because of fragmentation or of memory that
// others hold. A refusal within the budget's share of the device is none: it is as ordinary as one
// by the budget.
func (r *Runtime) reportOutOfMemory(req Request, err error) {
	if short, ok := errors.AsType[*OutOfMemoryError](err); ok && short.Bound == BoundBudget ||
		!errors.Is(err, ErrOutOfMemory) {
		return
	}
	r.report(Finding{Kind: names.FindingOutOfMemory, Err: err,
		Victim: Block{Requested: cmp.Or(req.Requested, req.Bytes), Bytes: req.Bytes, Tag: req.Tag.OrUntagged()},
		Text: fmt.Sprintf("no memory for %s tagged %s that the budget admitted: %v", size.Of(req.Bytes),
			legible.Value(req.Tag.OrUntagged()), legible.Kept(err))})
}

// inFlight lists what was in flight, for the report of a device that was lost with an
// error: the faulting launch is among them, if it declared a block. The launch that the driver says
// has faulted is the first in any case. Then come those that the text names, and at last what the
// runtime makes itself: a copy mostly waits behind the kernel that faulted.
func (r *Runtime) inFlight(err error) []UseRecord {
	const enough = 128
	words := strings.FieldsFunc(err.Error(), func(r rune) bool { return strings.ContainsRune(" ,;:'\"()", r) })
	rank := func(u UseRecord) int {
		switch {
		case slices.Contains(words, u.Launch):
			return 0
		case strings.HasPrefix(u.Launch, "copy.") || strings.HasPrefix(u.Launch, "gpumem."):
			return 2
		}
		return 1
	}
	launches := r.resource.Inspect().InFlight()
	slices.SortStableFunc(launches, func(a, b UseRecord) int { return cmp.Compare(rank(a), rank(b)) })
	if e, ok := errors.AsType[*DriverError](err); ok && e.Faulted != nil {
		is := func(u UseRecord) bool { return u.LaunchID == e.Faulted.LaunchID }
		first := *e.Faulted
		if i := slices.IndexFunc(launches, is); i >= 0 {
			first = launches[i] // it knows more
		}
		launches = slices.Insert(slices.DeleteFunc(launches, is), 0, first)
	}
	return launches[:min(len(launches), enough)]
}

func (r *Runtime) report(f Finding) {
	if r.findings == nil {
		return
	}
	f.Source = cmp.Or(f.Source, "runtime")
	if f.Time.IsZero() {
		f.Time = time.Now()
	}
	f.Err = legible.Kept(f.Err)
	usercode.Call("NewRuntime's findings", func() { r.findings(f) })
}

// HealthSign is one reason or note as it holds now.
type HealthSign struct {
	// Reason is a stable name. Those of notes are in the comment of [Health]. All reasons but the
	// first belong to a runtime that is degraded,
	// and are given by the root package's Runtime; docs/operate.md says when each begins
	// and ends.
	//
	//	sticky_error       the driver returned an error that lost the context
	//	poisoned_blocks    blocks could not be fenced, and can be neither used nor reused
	//	findings           a memory bug was found
	//	ledger_drift       the books and the pool do not agree, or a counter went below zero
	//	refusal_storm      many requests are refused that the budget could grant if others held less
	//	memory_limit       nothing is left of a limit that others set, such as a control group, or the
	//	                   runtime holds more of the device than the budget
	//	streams_exhausted  every stream is leased and callers wait
	//	guard_gaps         the guard left out checks that it should have made
	//	telemetry_loss     log records, incidents or spans were lost
	Reason string `json:"reason"`
	// Text says in words what was seen.
	Text string `json:"text"`
	// Since is when it began to hold.
	Since time.Time `json:"since"`
}
