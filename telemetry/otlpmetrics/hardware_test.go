package otlpmetrics_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/otlpmetrics"
)

const uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"

// gpuOf is a simulated device of 64 MiB of which others have 16, with a runtime, and
// its metrics.
func gpuOf(t *testing.T) (*sim.Device, *fencepost.Runtime, *prometheus.Registry) {
	t.Helper()
	device := must.Get(sim.Open(sim.Config{Bytes: 64 << 20, UUID: uuid}))(t)
	must.Get(device.MemAlloc(16 << 20))(t)
	rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Driver: device, Guard: fencepost.GuardOff}))(t)
	t.Cleanup(func() {
		_, _ = rt.Close(context.Background())
		_ = device.Close()
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(rt.Collector())
	return device, rt, registry
}

// One device has the names of the semantic conventions, with its identity.
func TestAGPUHasTheNamesOfTheConventions(t *testing.T) {
	device, rt, registry := gpuOf(t)
	scopes := must.Get(otlpmetrics.NewHardwareProducer(registry).Produce(t.Context()))(t)
	if len(scopes) != 1 || scopes[0].Scope.Version == "" || !strings.HasPrefix(scopes[0].Scope.SchemaURL, "https://opentelemetry.io/schemas/") {
		t.Fatalf("%+v", scopes)
	}
	all := map[string]metricdata.Aggregation{}
	for _, m := range scopes[0].Metrics {
		all[m.Name] = m.Data
	}
	for name, want := range map[string]int64{"hw.gpu.memory.limit": 64 << 20, "hw.gpu.memory.usage": 16 << 20} {
		points := all[name].(metricdata.Sum[int64]).DataPoints
		if id, _ := points[0].Attributes.Value("hw.id"); len(points) != 1 || points[0].Value < want || points[0].Value > want+8<<20 || id.AsString() != uuid {
			t.Errorf("%s is %+v, want %d", name, points, want)
		}
	}
	if points := all["hw.gpu.memory.utilization"].(metricdata.Gauge[float64]).DataPoints; points[0].Value < 0.25 || points[0].Value > 0.4 {
		t.Errorf("utilization is %+v", points)
	}
	if status := statusOf(t, registry); status["ok"] != 1 || status["failed"] != 0 {
		t.Errorf("a device that is well is %v", status)
	}
	device.LoseContext(driver.IllegalAddress)
	for rt.Health().State != names.HealthPoisoned { // which is noticed in the background
		time.Sleep(time.Millisecond)
	}
	if status := statusOf(t, registry); status["ok"] != 0 || status["failed"] != 1 {
		t.Errorf("a device that is lost is %v", status)
	}
}

func statusOf(t *testing.T, g prometheus.Gatherer) map[string]int64 {
	t.Helper()
	by := map[string]int64{}
	for _, m := range must.Get(otlpmetrics.NewHardwareProducer(g).Produce(t.Context()))(t)[0].Metrics {
		if m.Name != "hw.status" {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			state, _ := p.Attributes.Value("hw.state")
			by[state.AsString()] = p.Value
		}
	}
	return by
}

// What is pushed names the GPU; the conventions' names come where they are asked for.
func TestTheConventionsAreOptInAndTheResourceNamesTheGPU(t *testing.T) {
	_, _, registry := gpuOf(t)
	for wanted, pushed := range map[string]bool{"": false, "http,database/dup": false, "http, hardware": true} {
		to := newCollector(t)
		t.Setenv("OTEL_METRICS_EXPORTER", "")
		t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", to.URL+"/v1/metrics")
		t.Setenv("OTEL_SEMCONV_STABILITY_OPT_IN", wanted)
		stop := must.Get(otlpmetrics.Open(t.Context(), registry, nil))(t)
		must.Do(t, stop(context.Background()))
		to.mu.Lock()
		if to.names["hw.gpu.memory.usage"] != pushed || to.names["hw.status"] != pushed || !to.names["gpumem_memory_bytes"] || !to.gpus[uuid] {
			t.Errorf("with %q: %v of %v", wanted, to.names, to.gpus)
		}
		to.mu.Unlock()
	}
}
