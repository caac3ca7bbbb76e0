package spanfile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/spanfile"
)

func spanContext(span byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{span}, TraceFlags: trace.FlagsSampled})
}

func stub() tracetest.SpanStub {
	return tracetest.SpanStub{
		Name: "gpumem.prepare", SpanContext: spanContext(2), Parent: spanContext(1),
		StartTime: time.Unix(1, 5), EndTime: time.Unix(2, 7),
		Attributes: []attribute.KeyValue{attribute.Int64("big", math.MaxInt64), attribute.String("tag", "a<b"), attribute.Bool("yes", true),
			attribute.Int64Slice("list", []int64{1, 2}), attribute.Float64("half", 0.5), attribute.Float64("nan", math.NaN())},
		Links:  []sdktrace.Link{{SpanContext: spanContext(3), Attributes: []attribute.KeyValue{attribute.Int("gpumem.stream.id", 4)}}, {SpanContext: spanContext(5)}},
		Status: sdktrace.Status{Code: codes.Error, Description: "no"},
	}
}

func TestGoldenLine(t *testing.T) {
	var out bytes.Buffer
	e := spanfile.New(&out)
	root := tracetest.SpanStub{Name: "root", SpanContext: spanContext(9), StartTime: time.Unix(3, 0), EndTime: time.Unix(3, 0)}
	must.Do(t, e.ExportSpans(context.Background(), tracetest.SpanStubs{stub(), root}.Snapshots()))
	const id = "01000000000000000000000000000000"
	want := `{"name":"gpumem.prepare","trace_id":"` + id + `","span_id":"0200000000000000","parent_id":"0100000000000000","start":1000000005,"end":2000000007,` +
		`"attributes":{"big":9223372036854775807,"half":0.5,"list":[1,2],"nan":"NaN","tag":"a<b","yes":true},` +
		`"links":[{"trace_id":"` + id + `","span_id":"0300000000000000","attributes":{"gpumem.stream.id":4}},{"trace_id":"` + id + `","span_id":"0500000000000000"}],` +
		`"status":{"code":"Error","description":"no"}}` + "\n" +
		`{"name":"root","trace_id":"` + id + `","span_id":"0900000000000000","start":3000000000,"end":3000000000,"status":{"code":"Unset"}}` + "\n"
	if out.String() != want {
		t.Errorf("wrote:\n%swant:\n%s", out.String(), want)
	}
}

func TestLinesReadBack(t *testing.T) {
	var out bytes.Buffer
	must.Do(t, spanfile.New(&out).ExportSpans(context.Background(), tracetest.SpanStubs{stub()}.Snapshots()))
	var s spanfile.Span
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	must.Do(t, decoder.Decode(&s))
	if s.ParentID != "0100000000000000" || len(s.Links) != 2 || s.Status != (spanfile.Status{Code: "Error", Description: "no"}) ||
		!reflect.DeepEqual(s.Attributes["list"], []any{1.0, 2.0}) {
		t.Errorf("read back %+v", s)
	}
}

func TestNothingAfterShutdown(t *testing.T) {
	var out bytes.Buffer
	e := spanfile.New(&out)
	must.Do(t, e.Shutdown(context.Background()))
	if err := e.ExportSpans(context.Background(), tracetest.SpanStubs{stub()}.Snapshots()); !errors.Is(err, spanfile.ErrShutdown) || out.Len() != 0 {
		t.Errorf("got %v and %d bytes after shutdown", err, out.Len())
	}
}

func TestWriterErrorIsReturned(t *testing.T) {
	closed, err := os.CreateTemp(t.TempDir(), "spans")
	must.Do(t, err)
	closed.Close()
	if err := spanfile.New(closed).ExportSpans(context.Background(), tracetest.SpanStubs{stub()}.Snapshots()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v, want the writer's error", err)
	}
}

// Through the SDK's own pipeline a block's life comes out as whole lines.
func TestThroughTheSDK(t *testing.T) {
	var out bytes.Buffer
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spanfile.New(&out)))
	r := must.Get(telemetry.NewResource(coretest.NewFake(0), telemetry.Config{TracerProvider: provider}))(t)
	b := must.Get(r.Allocate(context.Background(), core.Request{Bytes: 64, Tag: "x"}))(t)
	must.Get(r.Deallocate(context.Background(), b.ID))(t)
	must.Do(t, provider.Shutdown(context.Background()))
	var got []string
	for line := range strings.Lines(out.String()) {
		var s spanfile.Span
		must.Do(t, json.Unmarshal([]byte(line), &s))
		got = append(got, s.Name)
	}
	if want := []string{"gpumem.alloc x", "gpumem.dealloc x"}; !reflect.DeepEqual(got, want) {
		t.Errorf("wrote %v, want %v", got, want)
	}
}
