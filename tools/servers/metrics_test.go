package servers

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/grpc"
)

// metricStore stands where metrics go behind the collector: it keeps the last
// that it was sent of each.
type metricStore struct {
	collectormetrics.UnimplementedMetricsServiceServer
	mu       sync.Mutex
	metrics  map[string]*metricspb.Metric
	services map[string]bool
}

func (r *metricStore) Export(_ context.Context, request *collectormetrics.ExportMetricsServiceRequest) (*collectormetrics.ExportMetricsServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range request.GetResourceMetrics() {
		for _, kv := range of.GetResource().GetAttributes() {
			if kv.GetKey() == "service.name" {
				r.services[kv.GetValue().GetStringValue()] = true
			}
		}
		for _, scope := range of.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				r.metrics[m.GetName()] = m
			}
		}
	}
	return &collectormetrics.ExportMetricsServiceResponse{}, nil
}

func newMetricStore(t *testing.T) (r *metricStore, address string, serve func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	r = &metricStore{metrics: map[string]*metricspb.Metric{}, services: map[string]bool{}}
	server := grpc.NewServer()
	collectormetrics.RegisterMetricsServiceServer(server, r)
	t.Cleanup(server.Stop)
	return r, listener.Addr().String(), func() { go func() { _ = server.Serve(listener) }() }
}

// metricsPipeline is what docs/observe.md adds to the collector's
// configuration, with another address.
func metricsPipeline(t *testing.T, to string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/observe.md"))
	must(t, err)
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(string(text))
	if block == nil || strings.Count(block[1], "metrics-store:4317") != 1 {
		t.Fatalf("docs/observe.md has no such pipeline: %q", block)
	}
	return strings.Replace(block[1], "metrics-store:4317", to, 1)
}

// kinds are the metrics that a scrape shows, with their types.
func kinds(t *testing.T, url string) map[string]string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", http.NoBody)
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = m[2]
	}
	return found
}

// The service's metrics go through a real collector: all that a scrape shows,
// under the same names, of the same kinds, cumulative, with histograms and with
// exemplars that lead to the traces of the requests.
func TestTheServicesMetricsComeOutOfTheCollector(t *testing.T) {
	traces, address, serveTraces := newTempo(t)
	metrics, store, serveMetrics := newMetricStore(t)
	endpoint := startCollector(t, address, metricsPipeline(t, store))
	serveTraces()
	serveMetrics()
	url, stop := startService(t, endpoint, "OTEL_METRICS_EXPORTER=otlp", "OTEL_METRIC_EXPORT_INTERVAL=200")
	const requests = 10
	for range requests {
		post(t, url+"/sort", `{"keys":[3,1,2]}`)
	}
	scraped := kinds(t, url)
	metrics.waitFor(t, "service_request_duration_seconds", requests) // in time, not only at the end
	stop()
	traces.waitFor(requests * spansOf(t, "sort.trace"))
	metrics.mu.Lock()
	defer metrics.mu.Unlock()
	if len(scraped) < 60 || len(metrics.services) != 1 || !metrics.services["fencepost-service"] {
		t.Errorf("%d metrics scraped, services %v", len(scraped), metrics.services)
	}
	for name, kind := range scraped {
		if strings.HasPrefix(name, "gpumem_tag_") && metrics.metrics[name] == nil {
			continue // nobody held memory any more when it was pushed
		}
		checkKind(t, name, kind, metrics.metrics[name])
	}
	checkExemplars(t, metrics.metrics["service_request_duration_seconds"], traces)
}

// waitFor waits until a histogram has counted so many.
func (r *metricStore) waitFor(t *testing.T, name string, count uint64) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(50 * time.Millisecond) {
		r.mu.Lock()
		points := r.metrics[name].GetHistogram().GetDataPoints()
		done := len(points) == 1 && points[0].GetCount() == count
		r.mu.Unlock()
		if done {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Fatalf("%s: %v", name, r.metrics[name])
}

func checkKind(t *testing.T, name, kind string, m *metricspb.Metric) {
	t.Helper()
	const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	switch kind {
	case "gauge", "untyped":
		if len(m.GetGauge().GetDataPoints()) == 0 {
			t.Errorf("the gauge %s came out as %v", name, m)
		}
	case "counter":
		if s := m.GetSum(); len(s.GetDataPoints()) == 0 || !s.GetIsMonotonic() || s.GetAggregationTemporality() != cumulative {
			t.Errorf("the counter %s came out as %v", name, m)
		}
	case "histogram":
		if h := m.GetHistogram(); len(h.GetDataPoints()) == 0 || h.GetAggregationTemporality() != cumulative || len(h.GetDataPoints()[0].GetExplicitBounds()) == 0 {
			t.Errorf("the histogram %s came out as %v", name, m)
		}
	case "summary":
		if len(m.GetSummary().GetDataPoints()) == 0 {
			t.Errorf("the summary %s came out as %v", name, m)
		}
	default:
		t.Errorf("%s is a %s", name, kind)
	}
	if m.GetDescription() == "" {
		t.Errorf("%s has lost its description", name)
	}
}

// checkExemplars demands that they name traces that have come out too.
func checkExemplars(t *testing.T, m *metricspb.Metric, traces *tempo) {
	t.Helper()
	exemplars := m.GetHistogram().GetDataPoints()[0].GetExemplars()
	if len(exemplars) == 0 {
		t.Fatal("there are no exemplars")
	}
	traces.mu.Lock()
	defer traces.mu.Unlock()
	for _, e := range exemplars {
		if len(traces.spans[string(e.GetTraceId())]) == 0 {
			t.Errorf("an exemplar leads to trace %s, which nobody has", hex.EncodeToString(e.GetTraceId()))
		}
	}
}
