package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// A resource that is observed makes a span of every operation.
func ExampleNewResource() {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	observed, err := telemetry.NewResource(coretest.NewFake(0), telemetry.Config{TracerProvider: provider})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	block, err := observed.Allocate(ctx, core.Request{Bytes: 4096, Tag: "sort.keys"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := observed.Deallocate(ctx, block.ID); err != nil {
		fmt.Println(err)
		return
	}
	for _, span := range recorder.Ended() {
		fmt.Println(span.Name())
	}
	operations := observed.Operations()
	fmt.Println(observed, operations.Calls(oplog.OpAllocate))
	// Output:
	// gpumem.alloc sort.keys
	// gpumem.dealloc sort.keys
	// telemetry(fake:0) 1
}

func ExampleFindings() {
	findings := telemetry.NewFindings(telemetry.FindingsConfig{Keep: 10})
	findings.Report(core.Finding{Kind: names.FindingLeak, Victim: core.Block{Tag: "index.build"}, Text: "64 bytes were never given back"})
	fmt.Println(findings.Counts())
	for _, finding := range findings.Recent() {
		fmt.Println(finding)
	}
	// Output:
	// map[leak:1]
	// leak: 64 bytes were never given back
}

// A probe outside a layer makes a span of what a traced operation asks of it.
func ExampleNewProbe() {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	stack, err := core.Chain(coretest.NewFake(0),
		func(up core.Resource) (core.Resource, error) {
			return telemetry.NewProbe(up, telemetry.LayerDriver, provider)
		},
		func(up core.Resource) (core.Resource, error) {
			return telemetry.NewResource(up, telemetry.Config{TracerProvider: provider})
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := stack.Allocate(context.Background(), core.Request{Bytes: 4096}); err != nil {
		fmt.Println(err)
		return
	}
	for _, span := range recorder.Ended() {
		fmt.Println(span.Name())
	}
	// Output:
	// gpumem.layer driver
	// gpumem.alloc
}

// bridge stands for a handler of OpenTelemetry, which looks for the trace in
// the context.
type bridge struct{ slog.Handler }

func (b bridge) Handle(ctx context.Context, r slog.Record) error {
	r.AddAttrs(slog.String("trace", trace.SpanContextFromContext(ctx).TraceID().String()))
	return b.Handler.Handle(ctx, r)
}

func ExampleNewLogHandler() {
	text := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	logger := slog.New(telemetry.NewLogHandler(bridge{text}))
	ctx := core.WithSpan(context.Background(), core.SpanRef{TraceID: [16]byte{0x4b}, SpanID: [8]byte{0x02}})
	logger.WarnContext(ctx, "gpu memory refusal", "tag", "rows")
	// Output: level=WARN msg="gpu memory refusal" tag=rows trace=4b000000000000000000000000000000
}

func ExampleParseLevel() {
	level, err := telemetry.ParseLevel("launches")
	fmt.Println(level, err)
	_, err = telemetry.ParseLevel("some")
	fmt.Println(err)
	// Output:
	// launches <nil>
	// invalid request: telemetry.ParseLevel: level: "some": say off, launches or operations
}
