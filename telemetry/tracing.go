package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// tracing makes the spans of one resource. A nil tracing makes none.
//
// The order in every operation is: look at the parent, start the span, and
// only if it records build anything more. The parent is looked at first
// because starting a span allocates even where the sampler says no.
type tracing struct {
	tracer trace.Tracer
	level  Level
	roots  bool
	device attribute.KeyValue
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
	return &tracing{
		tracer: cfg.TracerProvider.Tracer(ScopeName),
		level:  cfg.Level,
		roots:  !cfg.NoRoots,
		device: AttrDevice.Int(ordinal),

		findings: cfg.Findings,
		events:   events,
	}
}

// start starts a span that the caller ends, if it records. The context is for
// the layers below.
//
//nolint:spancheck // the caller ends it
func (t *tracing) start(ctx context.Context, name SpanName) (context.Context, trace.Span) {
	ctx, span := t.tracer.Start(ctx, string(name))
	return enter(ctx, span), span
}

// endSpan ends a span with the outcome of its operation, and the finding behind it.
func (t *tracing) endSpan(span trace.Span, err error, options ...trace.SpanEndOption) {
	if err != nil {
		noteFinding(t.findings, span, err)
	}
	end(span, err, options...)
}

// spanRef refers to span, or to none if nobody will ever see it.
func spanRef(span trace.Span) core.SpanRef { return refTo(span.SpanContext()) }

func refTo(sc trace.SpanContext) core.SpanRef {
	if !sc.IsSampled() {
		return core.SpanRef{}
	}
	return core.SpanRef{TraceID: sc.TraceID(), SpanID: sc.SpanID()}
}

// inForce is what is kept of a span context.
func inForce(sc trace.SpanContext) core.SpanContext {
	if !sc.IsValid() {
		return core.SpanContext{}
	}
	return core.SpanContext{SpanRef: core.SpanRef{TraceID: sc.TraceID(), SpanID: sc.SpanID()}, Sampled: sc.IsSampled()}
}

// SpanIn is the span in force in ctx, sampled or not, for a guard that keeps whose
// request did what; see debugguard.Config. It allocates nothing.
func SpanIn(ctx context.Context) core.SpanContext { return inForce(trace.SpanContextFromContext(ctx)) }

// spanContext is what ref refers to; it is invalid for the zero ref.
func spanContext(ref core.SpanRef) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: ref.TraceID, SpanID: ref.SpanID, TraceFlags: trace.FlagsSampled,
	})
}
