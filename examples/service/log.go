package main

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// withTrace returns a handler that adds to each record the trace of its
// context: of the request that was refused, or of the launch that a finding
// suspects. A bridge such as contrib's otelslog, which sends records to a
// collector, does so by itself.
func withTrace(next slog.Handler) slog.Handler { return tracedLog{next} }

type tracedLog struct{ next slog.Handler }

func (h tracedLog) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h tracedLog) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String(core.TraceIDKey, span.TraceID().String()), slog.String(core.SpanIDKey, span.SpanID().String()))
	}
	return h.next.Handle(ctx, r)
}

func (h tracedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tracedLog{h.next.WithAttrs(attrs)}
}
func (h tracedLog) WithGroup(name string) slog.Handler { return tracedLog{h.next.WithGroup(name)} }
