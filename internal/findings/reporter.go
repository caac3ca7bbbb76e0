// Package findings is what happens when a memory bug is found: one list, in
// Reporter.handle, which [Reporter.Report] and [Reporter.FromOracle] share.
//
// A finding comes from the debug guard, from the runtime, or, on a simulated
// device, from the device's oracle, which sees each access but knows addresses and
// driver handles only. What the oracle saw is first put into the words of the
// others: which block, whose, and on which stream (oracletranslator.go). Where guard and
// oracle saw the same bug, it is reported once (repeats.go). Some findings end the
// process, if the policy says so (stop.go).
//
// Everything that a Reporter calls is given to [New]; nothing is added later. What
// does not exist yet at that time, such as the guard, is asked for when a finding
// needs it.
//
// Refused requests are no findings. [Refusals] keeps the newest of them for those
// who look at a runtime afterwards.
package findings

import (
	"context"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/gpucore"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/ring"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// Config says where findings go.
type Config struct {
	// Collection counts the findings, keeps the newest, and makes spans and log
	// records of them.
	Collection *telemetry.Findings
	// LookAtHealth makes the watch of health look soon. It must not block.
	LookAtHealth func()
	// OnFinding is the program's; nil if there is none.
	OnFinding func(core.Finding)
	// Incidents and Dumps write files; nil if there is no folder for them.
	Incidents *incident.Writer
	Dumps     *dump.Writer
	// Stop, if not nil, ends the process upon a finding of [StopKinds] that is proven.
	Stop *StopConfig
	// Fault, if not nil, returns what waits for the GPU's core dump, if one has begun, or else nil.
	Fault func() func(context.Context) (*gpucore.Dump, error)
	// Xids, if not nil, says what the kernel's log has of a lost device. It may wait for a second.
	Xids func() string
	// Stack is the stack that the blocks and streams of a finding are of, or false
	// until it is built.
	Stack func() (Stack, bool)
}

// Reporter takes findings. It is safe for concurrent use.
type Reporter struct {
	cfg        Config
	stop       stopper
	translator oracleTranslator
	repeats    repeats
	explaining sync.WaitGroup
}

// New makes a Reporter.
func New(cfg Config) *Reporter {
	return &Reporter{cfg: cfg, stop: stopper{delivered: make(chan struct{})}, translator: oracleTranslator{stack: cfg.Stack}}
}

// Report takes a finding of the guard or the runtime.
func (r *Reporter) Report(f core.Finding) {
	if !r.translator.awaits(f) && !r.repeats.seenByOracle(f) && !r.explainLater(f) {
		r.handle(f)
	}
}

// FromOracle takes a finding of the simulated device, whose goroutine calls it. The program's code
// that is told of the finding runs on another: it may end that, and it may wait for the device. The
// device waits no longer than [oracleTime].
func (r *Reporter) FromOracle(f sim.Finding) {
	if found, ok := r.translator.translate(f); ok && !r.repeats.seenByGuard(found, f) {
		await(oracleTime, func() { usercode.Call("what is told of a finding", func() { r.handle(found.Finding) }) })
	}
}

// oracleTime is how long the simulated device waits until its finding is told.
const oracleTime = 3 * stopTime // a stop ends the process before

// handle is all that happens with a finding, in this order. What harmed nothing is
// only told: files are for what an operator must look into. The first finding that ends
// the process has the same steps, within the time that is left: see [Reporter.end].
func (r *Reporter) handle(f core.Finding) {
	if f.Harmless() {
		r.tell(f)
		return
	}
	ends := r.cfg.Stop != nil && !f.Unproven && slices.Contains(stopKinds[:], f.Kind)
	if ends && r.stop.begun.CompareAndSwap(false, true) {
		r.end(f)
		return
	}
	each(
		func() { f = r.cfg.Collection.Trace(f) }, // its spans, which all that follows can name
		func() {
			if r.cfg.Incidents != nil {
				f.Incident = r.cfg.Incidents.Take(f) // its file, which the log record names
			}
		},
		func() { r.tell(f) }, // its count and its log record, the health, the program
		func() {
			if ends {
				<-r.stop.delivered // another is ending the process, which must not go on
			}
			if r.cfg.Dumps != nil {
				why := dump.Finding
				if f.Kind == names.FindingStickyError || f.Kind == names.FindingIllegalAccess {
					why = dump.StickyError
				}
				r.cfg.Dumps.Trigger(why)
			}
		})
}

// tell calls what the program brought, which may block though it must not.
func (r *Reporter) tell(f core.Finding) {
	each(
		func() {
			if f.Harmless() {
				r.cfg.Collection.Report(f) // of which only the first of a place is more than counted
			} else {
				r.cfg.Collection.Take(f)
			}
		},
		r.cfg.LookAtHealth,
		func() {
			if r.cfg.OnFinding != nil {
				usercode.Call("Config.OnFinding", func() { r.cfg.OnFinding(f) })
			}
		})
}

// each takes all steps, also behind one in which code of the program ends the goroutine.
func each(steps ...func()) { usercode.All(steps, func(step func()) { step() }) }

// keptRefusals is how many refusals are kept.
const keptRefusals = 32

// Refusals keeps the newest refusals on their way to the log. The log has
// them too, as long as a busy stream leaves them there.
type Refusals struct {
	next  oplog.Sink
	trace func(context.Context, oplog.Event) (span core.SpanRef, alone bool)

	mu     sync.Mutex
	total  uint64
	recent ring.Ring[oplog.Event]
}

var _ oplog.Sink = (*Refusals)(nil)

// NewRefusals returns Refusals that pass every event on to next. trace makes a
// span of a refusal that has none.
func NewRefusals(next oplog.Sink, trace func(context.Context, oplog.Event) (span core.SpanRef, alone bool)) *Refusals {
	return &Refusals{next: next, trace: trace}
}

// Emit keeps a refusal, and passes every event on. One of which the caller
// is told leads to the request's trace, also if that is not sampled.
func (r *Refusals) Emit(ctx context.Context, e oplog.Event) {
	e.Err = legible.Kept(e.Err)
	if e.Op == oplog.OpRefusal {
		if e.Span.IsZero() && !e.Relieved {
			e.Span, e.Alone = r.trace(ctx, e)
		}
		r.mu.Lock()
		r.total++
		r.recent.Put(e, keptRefusals)
		r.mu.Unlock()
	}
	r.next.Emit(ctx, e)
}

// Newest is how many there were, and the last of them, oldest first.
func (r *Refusals) Newest() (uint64, []oplog.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total, r.recent.List()
}
