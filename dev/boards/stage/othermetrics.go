package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// otherMetrics are those of others that boards show beside the runtime's: of
// requests, by the names of OpenTelemetry's conventions, and of the GPU, by those
// of dcgm-exporter, which no simulated device has. The scene "work" moves them.
type otherMetrics struct {
	requests prometheus.ExemplarObserver
	gpu      []prometheus.Gauge
}

// newOtherMetrics has a request that took a millisecond, and a GPU without work.
func newOtherMetrics(registry *prometheus.Registry, uuid string) *otherMetrics {
	with := promauto.With(registry)
	requests := with.NewHistogram(prometheus.HistogramOpts{Name: "http_server_request_duration_seconds", Help: "Stands for the service's.", Buckets: prometheus.DefBuckets})
	requests.Observe(time.Millisecond.Seconds())
	m := &otherMetrics{requests: requests.(prometheus.ExemplarObserver)}
	for _, name := range []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"} {
		m.gpu = append(m.gpu, with.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Stands for dcgm-exporter's.", ConstLabels: prometheus.Labels{"UUID": uuid}}))
	}
	m.set(20)
	return m
}

func (m *otherMetrics) set(load float64) {
	for _, g := range m.gpu {
		g.Set(load)
	}
}

// busy has a request that took a while, and a GPU with work.
func (m *otherMetrics) busy() {
	m.set(80)
	m.requests.ObserveWithExemplar(0.2, prometheus.Labels{"trace_id": "0123456789abcdef0123456789abcdef"})
}
