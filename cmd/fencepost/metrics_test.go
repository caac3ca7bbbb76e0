package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// metricsCollector is an OpenTelemetry collector's HTTP endpoint for metrics.
type metricsCollector struct {
	mu      sync.Mutex
	metrics map[string]*metricspb.Metric
}

func (c *metricsCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collectormetrics.ExportMetricsServiceRequest
	if err != nil || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "not an export of metrics", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceMetrics() {
		for _, scope := range resource.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				c.metrics[m.GetName()] = m
			}
		}
	}
}

// The standard variables are all that it takes to push metrics, and the last
// push has the whole run in it.
func TestTheDemoPushesMetricsToACollector(t *testing.T) {
	c := &metricsCollector{metrics: map[string]*metricspb.Metric{}}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", server.URL+"/v1/metrics")
	last, code := demoUntil(t, counted(t, "gpumem_launches_total"), "--json")
	if code != exitClean {
		t.Errorf("exit code %d: %s", code, last)
	}
	value := must.Get(lookUp(last, "launches"))(t)
	launches := must.Get(value.(interface{ Float64() (float64, error) }).Float64())(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	points := c.metrics["gpumem_launches_total"].GetSum().GetDataPoints()
	if len(points) != 1 || points[0].GetAsDouble() != launches || launches == 0 {
		t.Errorf("the report has %v launches, the collector got %v", launches, points)
	}
	if c.metrics["gpumem_memory_bytes"].GetGauge() == nil || c.metrics["gpumem_spans_started_total"].GetSum() == nil {
		t.Errorf("the collector got %d metrics", len(c.metrics))
	}
}

func TestAnExporterOfMetricsThatNobodyHasIsABadInput(t *testing.T) {
	t.Setenv("OTEL_METRICS_EXPORTER", "telegraph")
	if code := runCaptured(t, func(string) {}, "demo", "--for", "100ms", "--listen="); code != exitBadInput {
		t.Errorf("exit code %d", code)
	}
}
