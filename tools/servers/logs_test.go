package servers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// logs stands where a store of OpenTelemetry's logs would.
type logs struct {
	mu      sync.Mutex
	records []sdklog.Record
}

func (l *logs) Export(_ context.Context, records []sdklog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		l.records = append(l.records, r.Clone())
	}
	return nil
}

func (*logs) Shutdown(context.Context) error   { return nil }
func (*logs) ForceFlush(context.Context) error { return nil }

// The record of a refusal that the logs SDK gets from the bridge carries the
// trace and the span of the allocation that was refused, and says them once.
func TestARefusalReachesTheLogsOfOpenTelemetry(t *testing.T) {
	store, recorder := &logs{}, tracetest.NewSpanRecorder()
	records := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewSimpleProcessor(store)))
	bridge := otelslog.NewHandler("gpu memory", otelslog.WithLoggerProvider(records))
	sink := logging.NewSlogSink(slog.New(telemetry.NewLogHandler(bridge)), logging.Queue{})
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Guard: "off", Budget: 1 << 20, TracerProvider: provider, LogSinks: []logging.Sink{sink}})
	must(t, err)
	ctx, request := provider.Tracer("service").Start(t.Context(), "POST /sort")
	if _, err := rt.Allocate(ctx, core.Request{Bytes: 2 << 20, Tag: "rows"}); !errors.Is(err, core.ErrOutOfBudget) {
		t.Fatalf("not refused: %v", err)
	}
	request.End()
	_, err = rt.Close(t.Context())
	must(t, err)
	must(t, sink.Close(t.Context()))
	must(t, records.Shutdown(t.Context()))

	alloc, refusals := recorder.Ended()[0].SpanContext(), 0
	for _, r := range store.records {
		if r.Body().AsString() != "gpu memory refusal" {
			continue
		}
		refusals++
		if r.TraceID() != request.SpanContext().TraceID() || r.SpanID() != alloc.SpanID() || !r.TraceFlags().IsSampled() {
			t.Errorf("the record is of trace %v, span %v; the allocation's are %v, %v", r.TraceID(), r.SpanID(), alloc.TraceID(), alloc.SpanID())
		}
		if r.Severity() != log.SeverityWarn {
			t.Errorf("its severity is %v", r.Severity())
		}
		r.WalkAttributes(func(kv attribute.KeyValue) bool {
			if kv.Key == names.TraceIDKey || kv.Key == names.SpanIDKey {
				t.Errorf("it says %s again", kv.Key)
			}
			return true
		})
	}
	if refusals != 1 {
		t.Errorf("%d records of a refusal among %d", refusals, len(store.records))
	}
}
