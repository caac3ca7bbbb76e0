package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// neighbours are the metrics of others that boards show beside the runtime's:
// of requests, by the names of OpenTelemetry's conventions, and of the GPU, by
// those of dcgm-exporter, which no simulated device has. The scene "work" moves
// them.
type neighbours struct {
	requests *prometheus.HistogramVec
	gpu      map[string]*prometheus.GaugeVec
}

func newNeighbours() *neighbours {
	n := &neighbours{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "http_server_request_duration_seconds", Help: "Stands for the service's.", Buckets: prometheus.DefBuckets}, nil),
		gpu:      map[string]*prometheus.GaugeVec{},
	}
	for _, name := range []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"} {
		n.gpu[name] = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "Stands for dcgm-exporter's."}, []string{"UUID"})
	}
	return n
}

func (n *neighbours) register(registry *prometheus.Registry) error {
	for _, g := range n.gpu {
		if err := registry.Register(g); err != nil {
			return err
		}
	}
	return registry.Register(n.requests)
}

// idle has requests that take a millisecond, and a GPU without work.
func (n *neighbours) idle(uuid string) {
	for _, g := range n.gpu {
		g.WithLabelValues(uuid).Set(20)
	}
	n.requests.WithLabelValues().Observe(time.Millisecond.Seconds())
}

// busy has a request that took a while, and a GPU with work.
func (n *neighbours) busy(uuid string) {
	for _, g := range n.gpu {
		g.WithLabelValues(uuid).Set(80)
	}
	n.requests.WithLabelValues().(prometheus.ExemplarObserver).ObserveWithExemplar(0.2, prometheus.Labels{"trace_id": "0123456789abcdef0123456789abcdef"})
}
