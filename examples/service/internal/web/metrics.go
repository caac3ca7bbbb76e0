package web

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// series are the service's own; the runtime brings those of the device.
type series struct {
	duration *prometheus.HistogramVec
	refusals *prometheus.CounterVec
	rows     *prometheus.CounterVec
}

func newSeries() *series {
	return &series{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "service_request_duration_seconds", Help: "How long requests took, by route and status.",
			Buckets:                     []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}, []string{"route", "code"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "service_refusals_total", Help: "Requests that were not served, by reason.",
		}, []string{"reason"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "service_rows_total", Help: "Rows of the requests that were served, by route.",
		}, []string{"route"}),
	}
}

// measured observes how long requests take. A sampled trace is the exemplar.
func (m *series) measured(route string, next http.Handler) http.Handler {
	of := m.duration.MustCurryWith(prometheus.Labels{"route": route})
	return promhttp.InstrumentHandlerDuration(of, next, promhttp.WithExemplarFromContext(exemplar))
}

// exemplar names the trace under the label that dashboards link by.
func exemplar(ctx context.Context) prometheus.Labels {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsSampled() {
		return nil
	}
	return prometheus.Labels{"trace_id": span.TraceID().String()}
}

func (s *Server) registerMetrics() error {
	inside := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "service_requests_in_flight", Help: "Requests that are being served or wait.",
	}, func() float64 { return float64(len(s.places)) })
	all := []prometheus.Collector{s.metrics.duration, s.metrics.refusals, s.metrics.rows, inside, s.cfg.Runtime.Collector(),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
	if s.cfg.SpanCounts != nil {
		all = append(all, metrics.NewSpanCollector(s.cfg.SpanCounts))
	}
	for _, c := range all {
		if err := s.registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Metrics is what /metrics serves, for code that pushes it.
func (s *Server) Metrics() prometheus.Gatherer { return s.registry }
