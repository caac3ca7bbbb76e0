package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// From the line of a refusal in the service's log one gets to the trace of the
// request that was refused, and there to the very call.
func TestARefusalInTheLogLeadsToItsTrace(t *testing.T) {
	for _, level := range []telemetry.Level{telemetry.LevelOperations, telemetry.LevelLaunches, telemetry.LevelOff} {
		var text strings.Builder
		sink := logging.NewSlogSink(slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn})), logging.Queue{})
		rt, recorder := tracedRuntime(t, fencepost.Config{Guard: "off", Budget: 1 << 20, TraceLevel: level, LogSinks: []logging.Sink{sink}})
		ctx, request := sdktrace.NewTracerProvider().Tracer("service").Start(t.Context(), "POST /sort")
		_, allocated := rt.Allocate(ctx, core.Request{Bytes: 2 << 20, Tag: "rows"})
		_, reserved := rt.Reserve(ctx, 2<<20, "rows")
		request.End()
		if !errors.Is(allocated, core.ErrOutOfBudget) || !errors.Is(reserved, core.ErrOutOfBudget) {
			t.Fatalf("not refused: %v, %v", allocated, reserved)
		}
		if err := sink.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		refused := request.SpanContext().SpanID()
		if level == telemetry.LevelOperations {
			alloc := spansNamed(recorder, telemetry.SpanAlloc)[0]
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
			if err := json.Unmarshal([]byte(lines[i]), &line); err != nil {
				t.Fatal(err)
			}
			if line["msg"] != "gpu memory refusal" || line["trace_id"] != request.SpanContext().TraceID().String() || line["span_id"] != span {
				t.Errorf("%v: %s, want trace %v and span %s", level, lines[i], request.SpanContext().TraceID(), span)
			}
		}
		if _, err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
