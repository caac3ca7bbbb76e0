package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// guardedTracer makes spans whose provider, sampler and processors are the program's: a panic of
// theirs costs the span, and not the operation. See package usercode.
type guardedTracer struct{ trace.Tracer }

const tracerCode = "a span processor, a sampler or the tracer provider"

// Start returns a span that does not record if the program's code panics. The context has the
// program's own span.
func (t guardedTracer) Start(ctx context.Context, name string,
	options ...trace.SpanStartOption) (inside context.Context, span trace.Span) {
	inside, span = ctx, noop.Span{}
	usercode.Call(tracerCode, func() {
		with, started := t.Tracer.Start(ctx, name, options...)
		if started.IsRecording() {
			started = guardedSpan{started}
		}
		inside, span = with, started //nolint:fatcontext // it is called once
	})
	return inside, span
}

// contextOf is the context of a span, which may be the program's. It is invalid if the span panics.
func contextOf(span trace.Span) (sc trace.SpanContext) {
	usercode.Call(tracerCode, func() { sc = span.SpanContext() })
	return sc
}

// contextIn is the context of the span in force in ctx. Both may be the program's. It is invalid if
// either panics.
func contextIn(ctx context.Context) (sc trace.SpanContext) {
	usercode.Call(tracerCode, func() { sc = trace.SpanContextFromContext(ctx) })
	return sc
}

// guardedSpan is a span that records.
type guardedSpan struct{ trace.Span }

func (s guardedSpan) End(options ...trace.SpanEndOption) {
	usercode.Call(tracerCode, func() { s.Span.End(options...) })
}

func (s guardedSpan) AddEvent(name string, options ...trace.EventOption) {
	usercode.Call(tracerCode, func() { s.Span.AddEvent(name, options...) })
}

func (s guardedSpan) AddLink(link trace.Link) {
	usercode.Call(tracerCode, func() { s.Span.AddLink(link) })
}

func (s guardedSpan) SetStatus(code codes.Code, description string) {
	usercode.Call(tracerCode, func() { s.Span.SetStatus(code, description) })
}

func (s guardedSpan) SetName(name string) {
	usercode.Call(tracerCode, func() { s.Span.SetName(name) })
}

func (s guardedSpan) SetAttributes(attributes ...attribute.KeyValue) {
	usercode.Call(tracerCode, func() { s.Span.SetAttributes(attributes...) })
}

// own is the program's span, for contexts.
func own(span trace.Span) trace.Span {
	if s, ok := span.(guardedSpan); ok {
		return s.Span
	}
	return span
}
