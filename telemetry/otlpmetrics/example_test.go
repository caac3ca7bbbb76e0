package otlpmetrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/telemetry/otlpmetrics"
)

// The registry that is scraped is also what is pushed, if the environment asks
// for it.
func ExampleOpen() {
	ctx := context.Background()
	rt, err := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(rt.Collector())
	stop, err := otlpmetrics.Open(ctx, registry, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = rt.Close(ctx)
	fmt.Println(err, stop(ctx)) // in this order: the last push has the end in it
	// Output:
	// <nil> <nil>
}
