package metrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func ExampleNewCollector() {
	fake := coretest.NewFake(0)
	if _, err := fake.Allocate(context.Background(), core.Request{Bytes: 4096}); err != nil {
		fmt.Println(err)
		return
	}
	collector, err := metrics.NewCollector(metrics.Source{Device: fake})
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
		if family.GetName() == "gpumem_memory_bytes" {
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

func ExampleCatalogue() {
	for _, m := range metrics.Catalogue() {
		if m.Name == "gpumem_waits_total" {
			fmt.Println(m.Type, m.Labels, m.Help)
		}
	}
	// Output: counter [device outcome] Dependencies on other streams, by whether a wait was queued or could be elided.
}
