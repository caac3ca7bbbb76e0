package telemetry_test

import (
	"context"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
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
	fmt.Println(observed, operations.Calls(core.OpAllocate))
	// Output:
	// gpumem.alloc
	// gpumem.dealloc
	// telemetry(fake:0) 1
}

func ExampleFindings() {
	findings := telemetry.NewFindings(telemetry.FindingsConfig{Keep: 10})
	findings.Report(core.Finding{Kind: core.FindingLeak, Victim: core.Block{Tag: "index.build"}, Text: "64 bytes were never given back"})
	fmt.Println(findings.Counts())
	for _, finding := range findings.Recent() {
		fmt.Println(finding)
	}
	// Output:
	// map[leak:1]
	// leak: 64 bytes were never given back
}
