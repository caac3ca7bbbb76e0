package telemetry

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/ring"
)

// failed is the span in the caller's trace of a call that failed and has no span of
// its own: one that was made of the same error before, or a new one. It is zero if
// nothing was exported. e says what is known of the call.
//
// In a trace that is not sampled the span is started as if its parent were sampled:
// the SDK's ParentBased samplers then sample it. Other samplers may still decline.
func (t *tracing) failed(ctx context.Context, e *oplog.Event) core.SpanRef {
	if t == nil || t.level == LevelOff {
		return core.SpanRef{}
	}
	parent := contextIn(ctx)
	switch {
	case !parent.IsValid():
		return core.SpanRef{}
	case parent.IsSampled():
		return t.failureSpan(ctx, e, names.TraceFull)
	}
	if span := t.events.about(parent.TraceID(), e.Err); !span.IsZero() {
		return span
	}
	if !t.events.admit(time.Now()) {
		return core.SpanRef{}
	}
	span := t.failureSpan(trace.ContextWithSpanContext(ctx, parent.WithTraceFlags(parent.TraceFlags().WithSampled(true))), e, names.TraceEvent)
	t.events.remember(span, e.Err)
	return span
}

func (t *tracing) failureSpan(ctx context.Context, e *oplog.Event, extent string) core.SpanRef {
	end := time.Now()
	operation := SpanFailure
	short, refused := errors.AsType[*core.OutOfBudgetError](e.Err)
	if refused {
		operation = SpanRefusal
	}
	_, span := t.tracer.Start(ctx, string(operation), trace.WithTimestamp(end.Add(-e.Duration)))
	if span.IsRecording() {
		name := SpanFailure.on(e.Op.String())
		if refused {
			name = t.tagged(SpanRefusal, e.Tag)
		}
		set(span, operation, name, append(t.failureAttributes(e, short), AttrTrace.String(extent), AttrErrorType.String(ErrorType(e.Err))))
		noteFinding(t.findings, span, e.Err)
		fail(span, legible.Kept(e.Err).Error())
	}
	span.End(trace.WithTimestamp(end))
	return spanRef(span)
}

// failureAttributes are what is known of the call, and of the budget that refused it if
// one did: not all calls name a stream, a block or bytes.
func (t *tracing) failureAttributes(e *oplog.Event, short *core.OutOfBudgetError) []attribute.KeyValue {
	attrs, stream := append(scratch(), t.device), number(AttrStream, e.Stream)
	tag, requested := text(AttrTag, string(e.Tag.OrUntagged())), number(AttrRequested, cmp.Or(e.Requested, e.Bytes))
	if short != nil {
		attrs = append(attrs, tag, requested, number(AttrLimit, short.Limit), number(AttrRemaining, short.Remaining))
		var holders []string
		for _, h := range short.Holders {
			holders = append(holders, strings.ToValidUTF8(h.String(), "\uFFFD"))
		}
		if len(holders) > 0 {
			attrs = append(attrs, AttrHolders.StringSlice(holders))
		}
		return appendWait(attrs, short.Wait)
	}
	attrs = append(attrs, AttrOperation.String(e.Op.String()))
	switch e.Op {
	case oplog.OpAllocate:
		return append(attrs, stream, tag, requested)
	case oplog.OpReserve:
		return append(attrs, tag, requested)
	case oplog.OpDeallocate, oplog.OpRecord:
		return append(attrs, stream, number(AttrGeneration, e.Block.Generation))
	case oplog.OpPrepare:
		return appendCulprit(appendLaunch(append(attrs, stream), names.Bound(e.Launch)), e.Err)
	}
	return attrs
}

func appendWait(attrs []attribute.KeyValue, w core.Wait) []attribute.KeyValue {
	if w.For != 0 {
		attrs = append(attrs, AttrWaited.Int64(int64(w.For)))
	}
	if w.Ahead != 0 {
		attrs = append(attrs, AttrAhead.Int(w.Ahead), number(AttrAheadBytes, w.AheadBytes),
			text(AttrAheadTag, string(w.First.OrUntagged())))
	}
	if w.Learning {
		attrs = append(attrs, AttrLearning.Bool(true))
	}
	return attrs
}

// Refused returns the exported span of a refusal in ctx's trace, and makes it if
// there is none yet: a [SpanRefusal], also where that trace is not sampled. It is zero where nothing is exported: without a trace, a provider, or
// beyond [MaxEventSpans]. alone reports whether the trace is not sampled. A layer
// that logs a refusal asks it first; see [oplog.Sink]. e must have an
// error. It does not block, unless the provider's processors do.
func (r *Resource) Refused(ctx context.Context, e oplog.Event) (span core.SpanRef, alone bool) {
	if e.Op == oplog.OpRefusal && !errors.Is(e.Err, core.ErrOutOfBudget) {
		e.Op = oplog.OpAllocate // only an allocation is refused by a reservation, the pool or the device
	}
	span = r.tracing.failed(ctx, &e)
	return span, !span.IsZero() && !SpanIn(ctx).Sampled
}

// TraceOf returns the exported span that a log record should name to lead into
// ctx's trace, and how much of that was exported: ctx's own span and
// "full" if it is sampled, or else the newest span of a refusal, a
// failure or a finding in that trace, among the last few, and "event". It is zero
// and empty if nothing was exported.
func (r *Resource) TraceOf(ctx context.Context) (span core.SpanRef, extent string) {
	in := SpanIn(ctx)
	if in.Sampled {
		return in.SpanRef, names.TraceFull
	}
	if r.tracing == nil || in.IsZero() {
		return core.SpanRef{}, ""
	}
	if span = r.tracing.events.about(in.TraceID, nil); span.IsZero() {
		return span, ""
	}
	return span, names.TraceEvent
}

// MaxEventSpans is how many spans of refusals, failures and findings a second a [Resource]
// makes in traces that are not sampled. What is beyond is counted, and leaves no
// trace: a service under overload refuses thousands.
const MaxEventSpans = 50

// maxRecentSpans is how many of them are remembered, so that a log record or the
// next layer finds the span that there is: those of some seconds.
const maxRecentSpans = 256

// eventSpans bounds and remembers the spans of events in traces that are not
// sampled. Only calls that failed and findings come here.
type eventSpans struct {
	dropped atomic.Uint64

	mu     sync.Mutex
	second int64
	made   int
	recent ring.Ring[eventSpan]
}

type eventSpan struct {
	span core.SpanRef
	err  error
}

// admit reports whether the second of now has room for one more, and takes it. A caller that
// waited for the lock may come with the second before.
func (s *eventSpans) admit(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if second := now.Unix(); second > s.second || second < s.second-1 {
		s.second, s.made = second, 0
	}
	if s.made >= MaxEventSpans {
		s.dropped.Add(1)
		return false
	}
	s.made++
	return true
}

// remember keeps a span of err, unless the sampler said no to it. An error that cannot be compared
// would panic in errors.Is, and one with a long text is not kept: their spans are found by the
// trace alone.
func (s *eventSpans) remember(span core.SpanRef, err error) {
	if span.IsZero() {
		return
	}
	if !reflect.ValueOf(err).Comparable() || any(legible.Kept(err)) != any(err) {
		err = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent.Put(eventSpan{span, err}, maxRecentSpans)
}

// about finds the newest span of a trace that was made of err or of an error that
// err wraps, or of any if err is nil.
func (s *eventSpans) about(id trace.TraceID, err error) core.SpanRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kept := range s.recent.Newest() {
		if kept.span.TraceID == id && (err == nil || errors.Is(err, kept.err)) {
			return kept.span
		}
	}
	return core.SpanRef{}
}
