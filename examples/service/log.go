package main

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// withTrace returns a handler that adds to each record the trace of its context,
// if that was sampled: of the request that was refused, or of the launch that a
// finding suspects. The trace of a request that was not sampled is found nowhere,
// unless its refusal was exported: that the record of the refusal says itself. A
// bridge such as contrib's otelslog, which sends records to a collector, adds the
// trace too, sampled or not.
func withTrace(next slog.Handler) slog.Handler { return tracedLog{next} }

type tracedLog struct{ next slog.Handler }

func (h tracedLog) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h tracedLog) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()), slog.String("trace", "full"))
	}
	return h.next.Handle(ctx, r)
}

func (h tracedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tracedLog{h.next.WithAttrs(attrs)}
}
func (h tracedLog) WithGroup(name string) slog.Handler { return tracedLog{h.next.WithGroup(name)} }
