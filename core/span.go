package core

import "context"

// SpanRef refers to a span of a trace without naming a tracing library. The
// zero value refers to none. Its fields are those of W3C trace context.
type SpanRef struct {
	TraceID [16]byte
	SpanID  [8]byte
}

// IsZero reports whether r refers to no span.
func (r SpanRef) IsZero() bool { return r == SpanRef{} }

// Extent is how much of the span's trace was exported, [TraceFull], or [TraceEvent] of
// one that is alone; empty without a span.
func (r SpanRef) Extent(alone bool) string {
	switch {
	case r.IsZero():
		return ""
	case alone:
		return TraceEvent
	}
	return TraceFull
}

// SpanContext is the span in force at a call, whether or not it is exported: what
// of OpenTelemetry's span context is kept of a call, so that what is found later
// can be told in the call's trace. The zero value is none.
type SpanContext struct {
	SpanRef
	// Sampled says that the span is exported.
	Sampled bool
}

// TraceIDKey and SpanIDKey are the fields by which log records name a span, in
// hexadecimal. Log stores find the trace of a record by these names. TraceKey
// says how much of that trace was exported: TraceFull or TraceEvent.
const (
	TraceIDKey = "trace_id"
	SpanIDKey  = "span_id"
	TraceKey   = "trace"
)

// The values of [TraceKey]. A record without a span has none.
const (
	// TraceFull: the trace was sampled.
	TraceFull = "full"
	// TraceEvent: the trace was not sampled, and the span that the record names
	// was exported all the same, because it tells of a refusal, a failure or a finding. The
	// rest of its trace may not exist anywhere.
	TraceEvent = "event"
)

// SpanCarrier is a context that says which span it was made for. A tracing
// layer hands one to its upstream, so that layers below can name the span in
// what they report without knowing a tracing library.
type SpanCarrier interface {
	context.Context
	// SpanRef is the span, which is exported; zero if there is none.
	SpanRef() SpanRef
}

// SpanOf returns the span that ctx carries, zero if it carries none. It looks
// at ctx itself and not at what that wraps, because every operation asks: a
// layer that wraps its caller's context hides the span, unless it passes it on
// with [WithSpan]. It allocates nothing.
func SpanOf(ctx context.Context) SpanRef {
	if c, ok := ctx.(SpanCarrier); ok {
		return c.SpanRef()
	}
	return SpanRef{}
}

// WithSpan returns a context that carries span and is else ctx.
func WithSpan(ctx context.Context, span SpanRef) context.Context {
	return &spanCarrier{Context: ctx, span: span}
}

type spanCarrier struct {
	context.Context
	span SpanRef
}

var _ SpanCarrier = (*spanCarrier)(nil)

func (c *spanCarrier) SpanRef() SpanRef { return c.span }
