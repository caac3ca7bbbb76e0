package otlpmetrics_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/otlpmetrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is an endpoint for metrics over HTTP.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	requests int
	names    map[string]bool
	services map[string]bool
	gpus     map[string]bool
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{names: map[string]bool{}, services: map[string]bool{}, gpus: map[string]bool{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(func() {
		c.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	body, err := io.ReadAll(r.Body)
	var request collectormetrics.ExportMetricsServiceRequest
	if err != nil || r.URL.Path != "/v1/metrics" || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "not an export of metrics", http.StatusBadRequest)
		return
	}
	for _, of := range request.GetResourceMetrics() {
		for _, kv := range of.GetResource().GetAttributes() {
			if kv.GetKey() == "service.name" {
				c.services[kv.GetValue().GetStringValue()] = true
			}
			if kv.GetKey() == "hw.id" {
				c.gpus[kv.GetValue().GetStringValue()] = true
			}
		}
		for _, scope := range of.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				c.names[m.GetName()] = true
			}
		}
	}
}

func TestTheVariablesDecideWhetherMetricsArePushed(t *testing.T) {
	for name, c := range map[string]struct {
		variables map[string]string
		pushes    bool
	}{
		"nothing":                     {nil, false},
		"an endpoint of all signals":  {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "URL"}, false},
		"an endpoint of metrics":      {map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL/v1/metrics"}, true},
		"the exporter, and all":       {map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "URL"}, true},
		"none, and an endpoint":       {map[string]string{"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL/v1/metrics"}, false},
		"prometheus, and an endpoint": {map[string]string{"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL/v1/metrics"}, false},
		"all of it, disabled":         {map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "URL", "OTEL_SDK_DISABLED": "true"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			to := newCollector(t)
			for _, unset := range []string{"OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_SDK_DISABLED"} {
				t.Setenv(unset, "")
			}
			for variable, value := range c.variables {
				t.Setenv(variable, strings.ReplaceAll(value, "URL", to.URL))
			}
			about := resource.NewSchemaless(attribute.String("service.name", "pushed"))
			stop, err := otlpmetrics.Open(t.Context(), registry(t, nil), about)
			must.Do(t, err)
			if err := stop(context.Background()); err != nil {
				t.Errorf("closing: %v", err)
			}
			to.mu.Lock()
			defer to.mu.Unlock()
			if pushed := to.names["a_gauge_bytes"] && to.names["a_counter_total"] && to.names["a_histogram_seconds"] && to.services["pushed"]; pushed != c.pushes || to.requests > 0 != c.pushes {
				t.Errorf("%d requests with %v of %v", to.requests, to.names, to.services)
			}
		})
	}
}

func TestVariablesThatCannotBeFollowedAreAnError(t *testing.T) {
	for variable, value := range map[string]string{"OTEL_METRICS_EXPORTER": "console", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
			t.Setenv(variable, value)
			if stop, err := otlpmetrics.Open(t.Context(), prometheus.NewRegistry(), nil); stop != nil || err == nil || !strings.Contains(err.Error(), value) || !strings.Contains(err.Error(), "say ") {
				t.Errorf("%s=%s: %v", variable, value, err)
			}
		})
	}
}
