package otlpmetrics

import (
	"context"
	"encoding/hex"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// aggregationVariable chooses the kind of histograms, as the specification of
// the OTLP exporter says.
const aggregationVariable = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"

// NewProducer returns what g has as a producer for a metric reader of one's own.
// It is OpenTelemetry's bridge, with two things set right that are lost in it:
//
// A histogram that has both kinds of buckets keeps the explicit ones, and so its
// exemplars, unless OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION is
// base2_exponential_bucket_histogram.
//
// The trace and span of an exemplar are bytes in OTLP and text in Prometheus.
// The bridge hands over the text, for which a collector refuses the whole
// request.
//
// It is as safe for concurrent use as g, and blocks as long as g does.
func NewProducer(g prometheus.Gatherer) sdkmetric.Producer {
	if !strings.EqualFold(os.Getenv(aggregationVariable), "base2_exponential_bucket_histogram") {
		g = explicit{g}
	}
	return producer{bridge.NewMetricProducer(bridge.WithGatherer(g))}
}

// explicit takes the native buckets away where there are others. The families
// that it is given are its own: a gatherer makes them anew.
type explicit struct{ gatherer prometheus.Gatherer }

// Gather returns what there is along with an error, as gatherers do.
func (e explicit) Gather() ([]*dto.MetricFamily, error) {
	families, err := e.gatherer.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); len(h.GetBucket()) > 0 {
				m.Histogram = &dto.Histogram{SampleCount: h.SampleCount, SampleSum: h.SampleSum, Bucket: h.GetBucket(), CreatedTimestamp: h.GetCreatedTimestamp()}
			}
		}
	}
	return families, err
}

// producer sets the identities of exemplars right.
type producer struct{ bridge sdkmetric.Producer }

// Produce collects once.
func (p producer) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	scopes, err := p.bridge.Produce(ctx)
	for _, scope := range scopes {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[float64]:
				for _, point := range data.DataPoints {
					decode(point.Exemplars)
				}
			case metricdata.Histogram[float64]:
				for _, point := range data.DataPoints {
					decode(point.Exemplars)
				}
			}
		}
	}
	return scopes, err
}

// The lengths of identities in bytes.
const (
	traceBytes = 16
	spanBytes  = 8
)

func decode(exemplars []metricdata.Exemplar[float64]) {
	for i := range exemplars {
		e := &exemplars[i]
		e.TraceID, e.SpanID = identity(e.TraceID, traceBytes), identity(e.SpanID, spanBytes)
	}
}

// identity is an identity of n bytes, or none: one of another length would cost
// the whole request.
func identity(id []byte, n int) []byte {
	if len(id) == n {
		return id
	}
	decoded, err := hex.DecodeString(string(id))
	if err != nil || len(decoded) != n {
		return nil
	}
	return decoded
}
