package telemetry_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// otelHandler notes the span that a handler of OpenTelemetry would find.
type otelHandler struct {
	slog.Handler
	found *[]trace.SpanContext
}

func (h otelHandler) Handle(ctx context.Context, r slog.Record) error {
	*h.found = append(*h.found, trace.SpanContextFromContext(ctx))
	return h.Handler.Handle(ctx, r)
}

func (h otelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return otelHandler{h.Handler.WithAttrs(attrs), h.found}
}

func (h otelHandler) WithGroup(name string) slog.Handler {
	return otelHandler{h.Handler.WithGroup(name), h.found}
}

func TestTheLogHandlerMovesTheSpanIntoTheContext(t *testing.T) {
	var text strings.Builder
	var found []trace.SpanContext
	handler := telemetry.NewLogHandler(otelHandler{slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelInfo}), &found})
	logger := slog.New(handler).With("service", "sorter").WithGroup("gpu")
	ref := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	own := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{8}, TraceFlags: trace.FlagsSampled})

	logger.InfoContext(core.WithSpan(t.Context(), ref), "refused", "trace_id", "01", "tag", "rows", "span_id", "02")
	logger.InfoContext(t.Context(), "untraced", "trace_id", "kept")
	logger.InfoContext(core.WithSpan(trace.ContextWithSpanContext(t.Context(), own), ref), "own", "span_id", "kept")
	logger.DebugContext(core.WithSpan(t.Context(), ref), "not logged")

	if len(found) != 3 || found[0].TraceID() != trace.TraceID(ref.TraceID) || found[0].SpanID() != trace.SpanID(ref.SpanID) || !found[0].IsSampled() || found[1].IsValid() || !found[2].Equal(own) {
		t.Errorf("the contexts have %v", found)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 3 || strings.Contains(lines[0], "trace_id") || strings.Contains(lines[0], "span_id") || !strings.Contains(lines[0], "service=sorter gpu.tag=rows") ||
		!strings.Contains(lines[1], "gpu.trace_id=kept") || !strings.Contains(lines[2], "gpu.span_id=kept") {
		t.Errorf("records\n%s", text.String())
	}
}
