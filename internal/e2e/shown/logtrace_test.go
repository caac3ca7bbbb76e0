package shown_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// From the line of a refusal in the service's log one gets to the trace of the
// request that was refused, and there to the very call.
func TestARefusalInTheLogLeadsToItsTrace(t *testing.T) {
	for _, level := range []telemetry.Level{telemetry.LevelOperations, telemetry.LevelLaunches, telemetry.LevelOff} {
		var text strings.Builder
		sink := logging.NewSlogSink(slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn})), logging.Queue{})
		rt, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: "off", Budget: 1 << 20, TraceLevel: level, LogSinks: []logging.Sink{sink}})
		ctx, request := sdktrace.NewTracerProvider().Tracer("service").Start(t.Context(), "POST /sort")
		_, allocated := rt.Allocate(ctx, core.Request{Bytes: 2 << 20, Tag: "rows"})
		_, reserved := rt.Reserve(ctx, 2<<20, "rows")
		request.End()
		if !errors.Is(allocated, core.ErrOutOfBudget) || !errors.Is(reserved, core.ErrOutOfBudget) {
			t.Fatalf("not refused: %v, %v", allocated, reserved)
		}
		must.Do(t, sink.Close(context.Background()))
		refused := request.SpanContext().SpanID()
		if level == telemetry.LevelOperations {
			alloc := e2e.SpansOf(recorder, telemetry.SpanAlloc)[0]
			if alloc.Status().Code != codes.Error || alloc.Parent().SpanID() != refused {
				t.Errorf("the allocation's span: %+v under %v", alloc.Status(), alloc.Parent())
			}
			refused = alloc.SpanContext().SpanID()
		}
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("%v: logged\n%s", level, text.String())
		}
		for i, span := range []string{refused.String(), request.SpanContext().SpanID().String()} {
			var line map[string]any
			must.Do(t, json.Unmarshal([]byte(lines[i]), &line))
			if line["msg"] != "gpu memory refusal" || line["trace_id"] != request.SpanContext().TraceID().String() || line["span_id"] != span || line["trace"] != "full" {
				t.Errorf("%v: %s, want trace %v and span %s", level, lines[i], request.SpanContext().TraceID(), span)
			}
		}
		if _, err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A refusal in a request that is not sampled is exported all the same, and the log
// leads to it: from the log of the device and from that of the service.
func TestARefusalOfAnUnsampledRequestLeadsToItsSpan(t *testing.T) {
	for _, guard := range []string{"off", "sample"} {
		for _, level := range []telemetry.Level{telemetry.LevelOperations, telemetry.LevelLaunches, telemetry.LevelOff} {
			var text strings.Builder
			sink := logging.NewSlogSink(slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn})), logging.Queue{})
			rt, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: fencepost.GuardMode(guard), Budget: 1 << 20, TraceLevel: level, LogSinks: []logging.Sink{sink}})
			ctx, request := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("service").Start(t.Context(), "POST /sort")
			granted, err := rt.Allocate(ctx, core.Request{Bytes: 1 << 10, Tag: "rows"})
			e2e.Succeed(t, "allocate", err)
			_, allocated := rt.Allocate(ctx, core.Request{Bytes: 2 << 20, Tag: "rows"})
			_, reserved := rt.Reserve(ctx, 2<<20, "rows")
			if !errors.Is(allocated, core.ErrOutOfBudget) || !errors.Is(reserved, core.ErrOutOfBudget) {
				t.Fatalf("not refused: %v, %v", allocated, reserved)
			}
			span, extent := rt.TraceOf(ctx)
			_, err = rt.Deallocate(ctx, granted.ID)
			e2e.Succeed(t, "free", err)
			e2e.Succeed(t, "close the sink", sink.Close(context.Background()))
			spans := recorder.Ended()
			if level == telemetry.LevelOff {
				if len(spans) != 0 || extent != "" || strings.Contains(text.String(), "trace") {
					t.Errorf("%s, %v: %d spans, %q, logged\n%s", guard, level, len(spans), extent, text.String())
				}
				continue
			}
			lines := strings.Split(strings.TrimSpace(text.String()), "\n")
			if len(spans) != 2 || len(lines) != 2 {
				t.Fatalf("%s, %v: %d spans, logged\n%s", guard, level, len(spans), text.String())
			}
			for i, s := range spans {
				var line map[string]any
				e2e.Succeed(t, "parse", json.Unmarshal([]byte(lines[i]), &line))
				if !e2e.IsOf(s, telemetry.SpanRefusal) || s.Parent().SpanID() != request.SpanContext().SpanID() || line["msg"] != "gpu memory refusal" ||
					line["trace_id"] != request.SpanContext().TraceID().String() || line["span_id"] != s.SpanContext().SpanID().String() || line["trace"] != "event" {
					t.Errorf("%s, %v: %s, the span is %v", guard, level, lines[i], s.SpanContext())
				}
			}
			if trace.SpanID(span.SpanID) != spans[1].SpanContext().SpanID() || extent != names.TraceEvent {
				t.Errorf("%s, %v: the service would log %v, %q", guard, level, span, extent)
			}
			if _, err := rt.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}
