package spancontract_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/dev/spancontract"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// Every name of a span and of an attribute is in the contract.
func TestTheContractHasEveryName(t *testing.T) {
	text := must.Get(os.ReadFile("../../telemetry/names.go"))(t)
	rows, keys := map[string]bool{}, map[string]bool{}
	for _, row := range spancontract.Rows() {
		rows[string(row.Operation)] = true
	}
	for _, d := range spancontract.Definitions() {
		keys[string(d.Key)] = true
	}
	for pattern, known := range map[string]map[string]bool{`SpanName = "([\w.]+)"`: rows, `attribute.Key = "([\w.]+)"`: keys} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) != len(known) {
			t.Errorf("%d names, the contract has %d", len(found), len(known))
		}
		for _, m := range found {
			if !known[m[1]] {
				t.Errorf("the contract lacks %s", m[1])
			}
		}
	}
}

// layer is a span that keeps the contract, of a trace of three, and a stub to
// break.
func layer(change func(*tracetest.SpanStub)) []sdktrace.ReadOnlySpan {
	scope := instrumentation.Scope{Name: telemetry.ScopeName}
	context := func(id byte) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{id}, TraceFlags: trace.FlagsSampled})
	}
	request := tracetest.SpanStub{Name: "request", SpanContext: context(1)}
	alloc := tracetest.SpanStub{Name: "gpumem.alloc t", SpanContext: context(2), Parent: context(1), SpanKind: trace.SpanKindInternal, InstrumentationScope: scope,
		Attributes: []attribute.KeyValue{telemetry.AttrDevice.Int(0), telemetry.AttrStream.Int(1), telemetry.AttrGeneration.Int(2), telemetry.AttrTag.String("t"),
			telemetry.AttrRequested.Int(3), telemetry.AttrBytes.Int(4), telemetry.AttrState.String("live"), telemetry.AttrSpanOperation.String(string(telemetry.SpanAlloc))}}
	stub := tracetest.SpanStub{Name: "gpumem.layer log", SpanContext: context(3), Parent: context(2), SpanKind: trace.SpanKindInternal, InstrumentationScope: scope,
		Attributes: []attribute.KeyValue{telemetry.AttrDevice.Int(0), telemetry.AttrLayer.String("log"), telemetry.AttrOperation.String("allocate"), telemetry.AttrSpanOperation.String(string(telemetry.SpanLayer))}}
	change(&stub)
	return tracetest.SpanStubs{request, alloc, stub}.Snapshots()
}

// A check that takes everything would take these too.
func TestTheCheckSeesABrokenSpan(t *testing.T) {
	for want, change := range map[string]func(*tracetest.SpanStub){
		"":                               func(*tracetest.SpanStub) {},
		"fits no row: []":                func(s *tracetest.SpanStub) { s.Attributes[3] = telemetry.AttrSpanOperation.String("gpumem.flush") },
		"the name is \"gpumem.layer\"":   func(s *tracetest.SpanStub) { s.Name = "gpumem.layer" },
		"of the target \"log\"":          func(s *tracetest.SpanStub) { s.Name = "gpumem.layer budget" },
		"the kind is client":             func(s *tracetest.SpanStub) { s.SpanKind = trace.SpanKindClient },
		"gpumem.tag does not belong":     func(s *tracetest.SpanStub) { s.Attributes = append(s.Attributes, telemetry.AttrTag.String("x")) },
		"gpumem.layer.name is missing":   func(s *tracetest.SpanStub) { s.Attributes = append(s.Attributes[:1:1], s.Attributes[2:]...) },
		"cuda.device.index stands there": func(s *tracetest.SpanStub) { s.Attributes = append(s.Attributes, telemetry.AttrDevice.Int(0)) },
		"is of type STRING":              func(s *tracetest.SpanStub) { s.Attributes[0] = telemetry.AttrDevice.String("0") },
		"the status is Ok":               func(s *tracetest.SpanStub) { s.Status.Code = codes.Ok },
		"error.type is missing":          func(s *tracetest.SpanStub) { s.Status.Code = codes.Error },
		"error.type without a failure":   func(s *tracetest.SpanStub) { s.Attributes = append(s.Attributes, telemetry.AttrErrorType.String("x")) },
		"the parent is the caller":       func(s *tracetest.SpanStub) { s.Parent = trace.SpanContext{} },
		"a link to \"gpumem.alloc\"":     func(s *tracetest.SpanStub) { s.Links = []sdktrace.Link{{SpanContext: s.Parent}} },
		"a link to \"\"":                 func(s *tracetest.SpanStub) { s.Links = []sdktrace.Link{{}} },
		"an event gpumem.finding":        func(s *tracetest.SpanStub) { s.Events = []sdktrace.Event{{Name: "gpumem.finding", Time: time.Now()}} },
	} {
		if got := strings.Join(spancontract.Check(layer(change)), "\n"); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("want a problem with %q, got %q", want, got)
		}
	}
	if seen := spancontract.Seen(layer(func(*tracetest.SpanStub) {})); seen["gpumem.layer"] != 1 || seen["gpumem.layer under gpumem.alloc"] != 1 || seen["gpumem.alloc, granted"] != 1 || seen["gpumem.alloc, failed"] != 0 {
		t.Errorf("seen %v", seen)
	}
}
