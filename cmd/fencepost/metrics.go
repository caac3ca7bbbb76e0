package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// newRegistry has the metrics of a run, to be scraped and to be pushed.
func newRegistry(rt *fencepost.Runtime, spans *spanPipe) (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{rt.Collector(), metrics.NewSpanCollector(spans.pipe.Counts)} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return registry, nil
}
