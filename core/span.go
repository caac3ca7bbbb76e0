package core

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core/names"
)

// SpanRef refers to a span of a trace without naming a tracing library. The
// zero value refers to none. Its fields are those of W3C trace context.
type SpanRef struct {
	TraceID [16]byte
	SpanID  [8]byte
}

// IsZero reports whether r refers to no span.
func (r SpanRef) IsZero() bool { return r == SpanRef{} }

// Extent is how much of the span's trace was exported: "full", or "event" of a span that
// is alone, because it tells of a refusal, a failure or a finding in a trace that was not
// sampled; empty without a span. Log records have it as "trace", beside "trace_id" and
// "span_id".
func (r SpanRef) Extent(alone bool) string {
	switch {
	case r.IsZero():
		return ""
	case alone:
		return names.TraceEvent
	}
	return names.TraceFull
}

// SpanContext is the span in force at a call, whether or not it is exported: what
// of OpenTelemetry's span context is kept of a call, so that what is found later
// can be told in the call's trace. The zero value is none.
type SpanContext struct {
	SpanRef
	// Sampled says that the span is exported.
	Sampled bool
}

// SpanOf returns the span that ctx carries, zero if it carries none. A tracing layer
// hands a context with a method SpanRef() SpanRef to its upstream, so that layers below
// can name the span, which is exported, in what they report without knowing a tracing
// library. SpanOf looks at ctx itself and not at what that wraps, because every
// operation asks: a layer that wraps its caller's context hides the span, unless it
// passes it on with [WithSpan]. It allocates nothing.
func SpanOf(ctx context.Context) SpanRef {
	if c, ok := ctx.(interface{ SpanRef() SpanRef }); ok {
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

func (c *spanCarrier) SpanRef() SpanRef { return c.span }
