package servers

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/dev/spancontract"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

var update = flag.Bool("update", false, "write the golden trace")

// oneRequest allocates, copies to the device, launches on two streams, of which
// the second waits for the first, copies back, and frees. What it is refused in the
// same trace, as if that were not sampled, is a span all the same.
func oneRequest(t *testing.T, provider trace.TracerProvider) {
	t.Helper()
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Guard: "off", TracerProvider: provider,
		Sim: sim.Config{Schedule: sim.Seeded(1)}, Async: cuda.AsyncConfig{ReapInterval: -1}})
	must(t, err)
	first, err := rt.Streams().Acquire(t.Context(), "first")
	must(t, err)
	second, err := rt.Streams().Acquire(t.Context(), "second")
	must(t, err)
	ctx, request := provider.Tracer("service").Start(t.Context(), "POST /scale", trace.WithSpanKind(trace.SpanKindServer))
	rows, err := cuda.Alloc[float32](ctx, rt.Memory(), 3, cuda.AllocOptions{Stream: first.ID(), Tag: "scale.rows"})
	must(t, err)
	must(t, cuda.CopyToDevice(ctx, rows, first.ID(), []float32{1, 2, 3}))
	must(t, rt.LaunchNamed(ctx, "scale", first.ID(), []core.Use{rows.Use(core.ReadWrite)}, zero(rt, rows, first)))
	must(t, rt.LaunchNamed(ctx, "clear", second.ID(), []core.Use{rows.Use(core.Write)}, zero(rt, rows, second)))
	_, err = cuda.Download(ctx, rows, second.ID())
	must(t, err)
	if _, err := rt.Reserve(unsampled(ctx), 1<<40, "scale.rows"); !errors.Is(err, core.ErrOutOfBudget) {
		t.Fatalf("not refused: %v", err)
	}
	must(t, rows.Free(ctx))
	request.End()
	must(t, first.Release())
	must(t, second.Release())
	_, err = rt.Close(t.Context())
	must(t, err)
}

// unsampled is ctx without the flag that says that its trace is sampled.
func unsampled(ctx context.Context) context.Context {
	sc := trace.SpanContextFromContext(ctx)
	return trace.ContextWithSpanContext(ctx, sc.WithTraceFlags(sc.TraceFlags().WithSampled(false)))
}

// zero is work for a stream.
func zero(rt *fencepost.Runtime, rows *cuda.Slice[float32], on *cuda.Lease) func(context.Context) error {
	return func(context.Context) error { return rt.Driver().MemsetAsync(rows.Ptr(), 0, rows.Bytes(), on.Handle()) }
}

// The spans of one request, as they come out of a real collector, keep the
// contract, and are those of the golden trace to the last attribute: no more, no
// fewer, under the same parents, with the same links.
func TestTheGoldenTrace(t *testing.T) {
	sink, address, serve := newTempo(t)
	endpoint, err := url.Parse(startCollector(t, address, "{}"))
	must(t, err)
	serve()
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(endpoint.Host), otlptracegrpc.WithInsecure())
	must(t, err)
	pipe := spanpipe.New(exporter, spanpipe.Config{})
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(pipe))
	oneRequest(t, provider)
	must(t, provider.Shutdown(t.Context()))
	exported := int(pipe.Counts().Exported)
	sink.waitFor(exported)
	spans := sink.received(t)
	if len(spans) != exported || exported == 0 {
		t.Errorf("%d spans came out, %d went in", len(spans), exported)
	}
	for _, problem := range spancontract.Check(spans) {
		t.Error(problem)
	}
	got, path := render(spans), filepath.Join("testdata", "request.trace")
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if got != string(want) {
		t.Errorf("the trace is not that of %s (rewrite it with -update):\n%s", path, got)
	}
}

// received is what came, of one trace, as the SDK has spans.
func (s *tempo) received(t *testing.T) []sdktrace.ReadOnlySpan {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spans) != 1 {
		t.Errorf("%d traces", len(s.spans))
	}
	var stubs tracetest.SpanStubs
	for _, spans := range s.spans {
		for _, span := range spans {
			stubs = append(stubs, stubOf(span, s.scopes[string(span.GetSpanId())]))
		}
	}
	slices.SortStableFunc(stubs, func(a, b tracetest.SpanStub) int {
		return cmp.Or(a.StartTime.Compare(b.StartTime), a.EndTime.Compare(b.EndTime))
	})
	return stubs.Snapshots()
}

func stubOf(s *tracepb.Span, scope string) tracetest.SpanStub {
	stub := tracetest.SpanStub{
		Name: s.GetName(), SpanKind: trace.SpanKind(s.GetKind()), SpanContext: contextOf(s.GetTraceId(), s.GetSpanId()), Parent: contextOf(s.GetTraceId(), s.GetParentSpanId()),
		StartTime: time.Unix(0, int64(s.GetStartTimeUnixNano())), EndTime: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Attributes: attributesOf(s.GetAttributes()), InstrumentationScope: instrumentation.Scope{Name: scope},
		Status: sdktrace.Status{Code: map[tracepb.Status_StatusCode]codes.Code{tracepb.Status_STATUS_CODE_OK: codes.Ok, tracepb.Status_STATUS_CODE_ERROR: codes.Error}[s.GetStatus().GetCode()], Description: s.GetStatus().GetMessage()},
	}
	for _, l := range s.GetLinks() {
		stub.Links = append(stub.Links, sdktrace.Link{SpanContext: contextOf(l.GetTraceId(), l.GetSpanId()), Attributes: attributesOf(l.GetAttributes())})
	}
	for _, e := range s.GetEvents() {
		stub.Events = append(stub.Events, sdktrace.Event{Name: e.GetName(), Attributes: attributesOf(e.GetAttributes())})
	}
	return stub
}

func contextOf(traceID, spanID []byte) trace.SpanContext {
	cfg := trace.SpanContextConfig{TraceFlags: trace.FlagsSampled}
	copy(cfg.TraceID[:], traceID)
	copy(cfg.SpanID[:], spanID)
	return trace.NewSpanContext(cfg)
}

func attributesOf(from []*commonpb.KeyValue) (to []attribute.KeyValue) {
	for _, kv := range from {
		key := attribute.Key(kv.GetKey())
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			to = append(to, key.String(v.StringValue))
		case *commonpb.AnyValue_IntValue:
			to = append(to, key.Int64(v.IntValue))
		case *commonpb.AnyValue_BoolValue:
			to = append(to, key.Bool(v.BoolValue))
		case *commonpb.AnyValue_ArrayValue:
			to = append(to, listOf(key, v.ArrayValue.GetValues()))
		}
	}
	return to
}

// listOf is a list of texts or of numbers.
func listOf(key attribute.Key, values []*commonpb.AnyValue) attribute.KeyValue {
	var numbers []int64
	var texts []string
	for _, v := range values {
		if s, ok := v.GetValue().(*commonpb.AnyValue_StringValue); ok {
			texts = append(texts, s.StringValue)
			continue
		}
		numbers = append(numbers, v.GetIntValue())
	}
	if texts != nil {
		return key.StringSlice(texts)
	}
	return key.Int64Slice(numbers)
}

// drawing renders spans as a tree. What differs from run to run is numbered as it comes.
type drawing struct {
	spans []sdktrace.ReadOnlySpan
	seen  map[string][]string
	out   strings.Builder
}

func render(spans []sdktrace.ReadOnlySpan) string {
	d := &drawing{spans: spans, seen: map[string][]string{}}
	d.children(trace.SpanID{}, "")
	return d.out.String()
}

func (d *drawing) children(parent trace.SpanID, indent string) {
	for _, s := range d.spans {
		if s.Parent().SpanID() != parent {
			continue
		}
		fmt.Fprintf(&d.out, "%s%s #%s, %v, status %v\n", indent, s.Name(), d.number("span", s.SpanContext().SpanID().String()), s.SpanKind(), s.Status().Code)
		d.attributes(s.Attributes(), indent+"  ")
		for _, l := range s.Links() {
			fmt.Fprintf(&d.out, "%s  link to #%s\n", indent, d.number("span", l.SpanContext.SpanID().String()))
			d.attributes(l.Attributes, indent+"    ")
		}
		for _, e := range s.Events() {
			fmt.Fprintf(&d.out, "%s  event %s\n", indent, e.Name)
		}
		d.children(s.SpanContext().SpanID(), indent+"    ")
	}
}

func (d *drawing) attributes(attributes []attribute.KeyValue, indent string) {
	byKey := func(a, b attribute.KeyValue) int { return cmp.Compare(a.Key, b.Key) }
	for _, kv := range slices.SortedFunc(slices.Values(attributes), byKey) {
		value := kv.Value.String()
		switch kv.Key {
		case telemetry.AttrGeneration, telemetry.AttrLaunchID, telemetry.AttrStream:
			value = "#" + d.number(string(kv.Key), value)
		case telemetry.AttrQueued, telemetry.AttrHeld, telemetry.AttrHeldBy, telemetry.AttrClockError:
			value = "a time"
		}
		fmt.Fprintf(&d.out, "%s%s: %v %s\n", indent, kv.Key, kv.Value.Type(), value)
	}
}

// number is how many values of a kind came before the value, and it.
func (d *drawing) number(kind, value string) string {
	i := slices.Index(d.seen[kind], value)
	if i < 0 {
		i = len(d.seen[kind])
		d.seen[kind] = append(d.seen[kind], value)
	}
	return fmt.Sprint(i + 1)
}
