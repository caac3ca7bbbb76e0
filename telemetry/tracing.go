package telemetry

import (
	"context"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// tracing makes the spans of one resource. A nil tracing makes none.
//
// The order in every operation is: look at the parent, or draw the trace id of a root, start the
// span, and only if it records build anything more. The SDK is asked last, because starting a span
// allocates even where the sampler says no.
type tracing struct {
	tracer trace.Tracer
	level  Level
	roots  *roots // nil if operations without a parent get no span
	device attribute.KeyValue
	// launches and tags are told apart in the names of spans.
	launches, tags *targets
	// findings may be nil.
	findings *Findings
	// events are shared with findings, which are told within the same bound.
	events *eventSpans
}

// tracing is what traces a device as cfg says; nil if nothing is traced.
func (cfg Config) tracing(ordinal int) *tracing {
	if cfg.TracerProvider == nil {
		return nil
	}
	events := new(eventSpans)
	if cfg.Findings != nil {
		events = &cfg.Findings.events
	}
	t := &tracing{
		tracer: tracerOf(cfg.TracerProvider),
		level:  cfg.Level,
		device: AttrDevice.Int(ordinal),

		launches: targetsOf(SpanLaunch, SpanPrepare, SpanFinish, SpanDevice),
		tags:     targetsOf(SpanJob, SpanAlloc, SpanDealloc, SpanRefusal, SpanDevice),

		findings: cfg.Findings,
		events:   events,
	}
	if !cfg.NoRoots {
		t.roots = rootsOf(cfg.TracerProvider)
	}
	return t
}

// start starts the span of an operation as it was admitted, which the caller ends; nil if that does
// not record. The context is for the layers below.
func (t *tracing) start(ctx context.Context, name SpanName, as admission) (context.Context, trace.Span) {
	ctx, span := t.tracer.Start(ctx, string(name))
	if as == asRoot {
		t.roots.asked(span)
	}
	if !span.IsRecording() {
		return ctx, nil
	}
	return enter(ctx, span), span
}

// tagged is the name of the span of an operation on memory of a tag.
func (t *tracing) tagged(operation SpanName, tag core.Tag) string {
	if tag = tag.OrUntagged(); tag == names.Untagged {
		return string(operation)
	}
	return t.tags.name(operation, string(tag))
}

// endSpan ends a span with the outcome of its operation, and the finding behind it.
func (t *tracing) endSpan(span trace.Span, err error, options ...trace.SpanEndOption) {
	if err != nil {
		noteFinding(t.findings, span, err)
	}
	end(span, err, options...)
}

// spanRef refers to span, or to none if it is never exported.
func spanRef(span trace.Span) core.SpanRef {
	sc := contextOf(span)
	if !sc.IsSampled() {
		return core.SpanRef{}
	}
	return core.SpanRef{TraceID: sc.TraceID(), SpanID: sc.SpanID()}
}

// SpanIn is the span in force in ctx, sampled or not, for a guard that keeps whose
// request did what; see debugguard.Config. It allocates nothing.
func SpanIn(ctx context.Context) core.SpanContext {
	if d, ok := ctx.(*declinedRoot); ok {
		return d.ref()
	}
	sc := contextIn(ctx)
	in := core.SpanContext{SpanRef: core.SpanRef{TraceID: sc.TraceID(), SpanID: sc.SpanID()}, Sampled: sc.IsSampled()}
	if in.TraceID == [16]byte{} || in.SpanID == [8]byte{} {
		return core.SpanContext{}
	}
	return in
}

// spanContext is what ref refers to; it is invalid for the zero ref.
func spanContext(ref core.SpanRef) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: ref.TraceID, SpanID: ref.SpanID, TraceFlags: trace.FlagsSampled})
}

// operation is the context that the layers below get with an operation in a sampled
// trace. They find its span without a search: [core.SpanOf] for their reports, and
// by the type a [Probe], which makes spans of traced operations only.
type operation struct {
	context.Context
	span core.SpanRef
	// traced is set if the operation has a span of its own. One that has none says
	// so, because it may be called within one that has: by a launch function.
	traced bool
}

// SpanRef is the operation's span, or that of its caller.
func (o *operation) SpanRef() core.SpanRef { return o.span }

// operationKey is the key by which a context that wraps an operation has it.
type operationKey struct{}

// Value is the operation itself, or what it wraps has under key.
func (o *operation) Value(key any) any {
	if key == (operationKey{}) {
		return o
	}
	return o.Context.Value(key)
}

// inTracedOperation reports whether ctx is that of a traced operation. Most layers
// pass it on as it is, and then it allocates nothing.
func inTracedOperation(ctx context.Context) bool {
	if o, ok := ctx.(*operation); ok {
		return o.traced
	}
	return wrapsTracedOperation(ctx)
}

// wrapsTracedOperation searches a context that a layer has wrapped, in a deadline or
// with a value or a span of its own. A span in between that is not sampled ends the
// trace.
func wrapsTracedOperation(ctx context.Context) bool {
	o, ok := ctx.Value(operationKey{}).(*operation)
	return ok && o.traced && contextIn(ctx).IsSampled()
}

// under is ctx inside span, for the layers below. A span that is recorded but
// not sampled is nothing that a report should name.
func under(ctx context.Context, span trace.Span) context.Context {
	return enter(trace.ContextWithSpan(ctx, own(span)), span)
}

// enter is under for a context that carries span already.
func enter(ctx context.Context, span trace.Span) context.Context {
	if ref := spanRef(span); !ref.IsZero() {
		return &operation{Context: ctx, span: ref, traced: true}
	}
	return ctx
}

// admission says what becomes of an operation.
type admission uint8

const (
	// asIs: it gets no span.
	asIs admission = iota
	// asChild: it gets one if the sampler takes it.
	asChild
	// asRoot: the same, in a trace of its own.
	asRoot
	// declined: the sampler would not take the root that it would begin.
	declined
)

// starts reports whether there is a span to start.
func (a admission) starts() bool { return a == asChild || a == asRoot }

// admit looks at the caller's span, once. It says whether an operation
// that is traced up to the level last gets a span, and the context to start it with. If it gets
// none although the caller's is sampled, the layers below are told the caller's.
// in, unless nil, becomes the caller's span.
func (t *tracing) admit(ctx context.Context, last Level, in *core.SpanContext) (context.Context, admission) {
	if t == nil {
		return ctx, asIs
	}
	if d, ok := ctx.(*declinedRoot); ok {
		if in != nil && t.level <= last {
			*in = d.ref()
		}
		return ctx, asIs
	}
	span, ok := ctx.Value(spanKey).(trace.Span)
	if !ok {
		return t.root(ctx, last)
	}
	caller := contextOf(span)
	id, number := caller.TraceID(), caller.SpanID() // once: each method copies all of it
	switch {
	case !id.IsValid() || !number.IsValid():
		return t.root(ctx, last)
	case !caller.IsSampled():
		if in != nil && t.level <= last {
			in.TraceID, in.SpanID = id, number
		}
		return ctx, asIs
	case t.level <= last:
		return ctx, asChild
	}
	return carry(ctx, SpanIn(ctx)), asIs
}

// root is admit for an operation without a parent.
func (t *tracing) root(ctx context.Context, last Level) (context.Context, admission) {
	if t.level > last || t.roots == nil {
		return ctx, asIs
	}
	return t.roots.draw(ctx)
}

// correlate tells the layers below the caller's span, for an operation that
// never gets one.
func (t *tracing) correlate(ctx context.Context) context.Context {
	if t == nil {
		return ctx
	}
	if caller := SpanIn(ctx); caller.Sampled {
		return carry(ctx, caller)
	}
	return ctx
}

func carry(ctx context.Context, caller core.SpanContext) context.Context {
	return &operation{Context: ctx, span: caller.SpanRef}
}

// Level says which operations become spans.
type Level uint8

// The levels. The zero value is the default.
const (
	// LevelOperations: launches, and every alloc, prepare, finish and
	// dealloc.
	LevelOperations Level = iota
	// LevelLaunches: launches only. The links of cross-stream waits then go
	// from launch to launch.
	LevelLaunches
	// LevelOff: no spans, only counters. What the layers below log still names
	// the caller's span.
	LevelOff
)

var levelNames = [...]string{"operations", "launches", "off"}

// String is the level's name, such as "launches".
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// ParseLevel reads a level's name. Another text is a
// [core.InvalidRequestError].
func ParseLevel(name string) (Level, error) {
	if l := slices.Index(levelNames[:], name); l >= 0 {
		return Level(l), nil
	}
	return 0, &core.InvalidRequestError{Op: "telemetry.ParseLevel", Field: "level", Reason: legible.Value(name) +
		": say off, launches or operations"}
}

// Steps returns what makes a [SpanCopy] of each copy and a [SpanWait] of each wait in
// a sampled trace of the device of that ordinal: what a request spends its time with
// beside the operations of a [Resource]. It begins no trace of its own. cfg says what
// is traced: copies at [LevelOperations], waits at [LevelLaunches] too. Give it to
// cuda.StreamPoolConfig.
func Steps(cfg Config, ordinal int) func(ctx context.Context, s oplog.Step) (end func(err error)) {
	return cfg.tracing(ordinal).beginStep
}

// beginStep starts the step's span if ctx's trace is sampled; otherwise it looks
// at the context and that is all.
func (t *tracing) beginStep(ctx context.Context, step oplog.Step) func(error) {
	name, last := SpanWait, LevelLaunches
	if step.Direction != "" {
		name, last = SpanCopy, LevelOperations
	}
	if t == nil || t.level > last || !SpanIn(ctx).Sampled {
		return nil
	}
	_, span := t.tracer.Start(ctx, string(name))
	if !span.IsRecording() {
		return nil
	}
	attrs, target := append(scratch(), t.device, number(AttrStream, step.Stream)), step.Direction
	switch {
	case target != "":
		attrs = append(attrs, AttrCopyDirection.String(target), number(AttrCopyBytes, step.Bytes))
	case step.Memory:
		target = WaitForMemory
		attrs = append(attrs, AttrWaitFor.String(target), number(AttrBytes, step.Bytes))
	default:
		target = WaitForStream
		attrs = append(attrs, AttrWaitFor.String(target))
	}
	set(span, name, name.on(target), attrs)
	return func(err error) { end(span, err) }
}
