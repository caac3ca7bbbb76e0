package otlpmetrics_test

import (
	"encoding/hex"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fencepost-gpu/fencepost/telemetry/otlpmetrics"
)

const (
	traceID = "0102030405060708090a0b0c0d0e0f10"
	spanID  = "1112131415161718"
)

// registry has a metric of each kind, with exemplars; the histogram has both
// kinds of buckets.
func registry(t *testing.T, exemplar prometheus.Labels) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "a_gauge_bytes", Help: "A gauge."})
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "a_counter_total", Help: "A counter."})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "a_histogram_seconds", Help: "A histogram.", Buckets: []float64{1, 2}, NativeHistogramBucketFactor: 1.1})
	r.MustRegister(gauge, counter, histogram)
	gauge.Set(7)
	counter.(prometheus.ExemplarAdder).AddWithExemplar(3, exemplar)
	histogram.(prometheus.ExemplarObserver).ObserveWithExemplar(1.5, exemplar)
	return r
}

func produce(t *testing.T, p sdkmetric.Producer) map[string]metricdata.Aggregation {
	t.Helper()
	scopes, err := p.Produce(t.Context())
	if err != nil || len(scopes) != 1 {
		t.Fatalf("%d scopes, %v", len(scopes), err)
	}
	found := map[string]metricdata.Aggregation{}
	for _, m := range scopes[0].Metrics {
		found[m.Name] = m.Data
	}
	return found
}

// exemplarsOf are those of the counter and of the histogram, which must have
// explicit buckets.
func exemplarsOf(t *testing.T, all map[string]metricdata.Aggregation) []metricdata.Exemplar[float64] {
	t.Helper()
	counter, isSum := all["a_counter_total"].(metricdata.Sum[float64])
	histogram, isExplicit := all["a_histogram_seconds"].(metricdata.Histogram[float64])
	if !isSum || !isExplicit {
		t.Fatalf("the counter is a %T, the histogram a %T", all["a_counter_total"], all["a_histogram_seconds"])
	}
	found := counter.DataPoints[0].Exemplars
	found = append(found, histogram.DataPoints[0].Exemplars...)
	if len(found) != 2 {
		t.Fatalf("%d exemplars", len(found))
	}
	return found
}

func TestExemplarsKeepTheirTraces(t *testing.T) {
	r := registry(t, prometheus.Labels{"trace_id": traceID, "span_id": spanID})
	for _, e := range exemplarsOf(t, produce(t, otlpmetrics.NewProducer(r))) {
		if hex.EncodeToString(e.TraceID) != traceID || hex.EncodeToString(e.SpanID) != spanID {
			t.Errorf("trace %x, span %x", e.TraceID, e.SpanID)
		}
	}
}

// A collector refuses a whole request for one identity of a wrong length.
func TestAnIdentityThatIsNoneIsLeftOut(t *testing.T) {
	for _, id := range []string{"short", traceID + "00", "0102030405060708090a0b0c0d0e0fzz"} {
		r := registry(t, prometheus.Labels{"trace_id": id})
		for _, e := range exemplarsOf(t, produce(t, otlpmetrics.NewProducer(r))) {
			if len(e.TraceID) != 0 || len(e.SpanID) != 0 || e.Value == 0 {
				t.Errorf("%q became trace %x, span %x of %v", id, e.TraceID, e.SpanID, e.Value)
			}
		}
	}
}

func TestValuesStayAndEverythingIsCumulative(t *testing.T) {
	all := produce(t, otlpmetrics.NewProducer(registry(t, nil)))
	gauge, _ := all["a_gauge_bytes"].(metricdata.Gauge[float64])
	counter, _ := all["a_counter_total"].(metricdata.Sum[float64])
	histogram, _ := all["a_histogram_seconds"].(metricdata.Histogram[float64])
	if len(all) != 3 || gauge.DataPoints[0].Value != 7 || counter.DataPoints[0].Value != 3 {
		t.Errorf("%+v", all)
	}
	if counter.Temporality != metricdata.CumulativeTemporality || !counter.IsMonotonic || histogram.Temporality != metricdata.CumulativeTemporality {
		t.Errorf("the counter %v, the histogram %v", counter.Temporality, histogram.Temporality)
	}
	if p := histogram.DataPoints[0]; p.Count != 1 || p.Sum != 1.5 || len(p.Bounds) != 2 || p.BucketCounts[1] != 1 {
		t.Errorf("the histogram: %+v", p)
	}
}

func TestNativeHistogramsAreThereForWhoAsks(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "base2_exponential_bucket_histogram")
	all := produce(t, otlpmetrics.NewProducer(registry(t, nil)))
	if h, ok := all["a_histogram_seconds"].(metricdata.ExponentialHistogram[float64]); !ok || h.DataPoints[0].Count != 1 {
		t.Errorf("a %T", all["a_histogram_seconds"])
	}
}

// What the package is for: as soon as this fails the bridge does it itself.
func TestTheBridgeAloneLosesThem(t *testing.T) {
	r := registry(t, prometheus.Labels{"trace_id": traceID})
	all := produce(t, bridge.NewMetricProducer(bridge.WithGatherer(r)))
	counter, _ := all["a_counter_total"].(metricdata.Sum[float64])
	if len(counter.DataPoints[0].Exemplars[0].TraceID) == 16 {
		t.Error("the bridge decodes traces: identity is not needed any more")
	}
	if _, ok := all["a_histogram_seconds"].(metricdata.ExponentialHistogram[float64]); !ok {
		t.Errorf("the bridge makes a %T of a histogram with both kinds of buckets", all["a_histogram_seconds"])
	}
}
