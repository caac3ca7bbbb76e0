package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// NewLogHandler returns a handler for [logging.NewSlogSink] that puts a
// record's trace where handlers of OpenTelemetry look for it, such as that of
// contrib's otelslog: into the context, as a remote span. The attributes
// "trace_id" and "span_id", by which other handlers' records name
// it, are left out then, so that it is said once. What has no span, or a
// context that has one already, is passed on as it is.
//
//	bridge := otelslog.NewHandler("gpu memory")
//	sink := logging.NewSlogSink(slog.New(telemetry.NewLogHandler(bridge)), logging.Queue{})
//
// [logging.NewSlogSink]: https://pkg.go.dev/github.com/fencepost-gpu/fencepost/decorators/logging#NewSlogSink
func NewLogHandler(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ next slog.Handler }

func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	ref := core.SpanOf(ctx)
	if ref.IsZero() || contextIn(ctx).IsValid() {
		return h.next.Handle(ctx, r)
	}
	return h.next.Handle(trace.ContextWithRemoteSpanContext(ctx, spanContext(ref)), withoutSpan(r))
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.next.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.next.WithGroup(name)} }

// withoutSpan is r without the attributes that name its span.
func withoutSpan(r slog.Record) slog.Record {
	kept := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != names.TraceIDKey && a.Key != names.SpanIDKey {
			kept.AddAttrs(a)
		}
		return true
	})
	return kept
}
