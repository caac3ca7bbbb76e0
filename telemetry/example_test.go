package telemetry_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
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
	fmt.Println(observed, operations.Total())
	// Output:
	// gpumem.alloc
	// gpumem.dealloc
	// telemetry(fake:0) 2
}

func ExampleNewCollector() {
	fake := coretest.NewFake(0)
	if _, err := fake.Allocate(context.Background(), core.Request{Bytes: 4096}); err != nil {
		fmt.Println(err)
		return
	}
	collector, err := telemetry.NewCollector(telemetry.Source{Device: fake})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		if family.GetName() == string(telemetry.MetricMemoryBytes) {
			for _, metric := range family.GetMetric() {
				fmt.Println(metric.GetLabel()[1].GetValue(), metric.GetGauge().GetValue())
			}
		}
	}
	// Output:
	// live 4096
	// pending 0
	// quarantined 0
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

func ExampleCatalogue() {
	for _, m := range telemetry.Catalogue() {
		if m.Name == telemetry.MetricWaits {
			fmt.Println(m.Type, m.Labels, m.Help)
		}
	}
	// Output: counter [device outcome] Dependencies on other streams, by whether a wait was queued or could be elided.
}
