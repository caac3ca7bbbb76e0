package otlpmetrics

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/fencepost-gpu/fencepost/internal/version"
)

const (
	// optInVariable lists the semantic conventions, still in development, that are
	// wanted; optIn is the name of those for hardware.
	optInVariable = "OTEL_SEMCONV_STABILITY_OPT_IN"
	optIn         = "hardware"
)

func wantsHardware() bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(optInVariable), ","), func(name string) bool { return strings.TrimSpace(name) == optIn })
}

// NewHardwareProducer returns what the semantic conventions for hardware name of
// each GPU whose runtime has its collector in g: hw.gpu.memory.limit and
// hw.gpu.memory.usage in bytes, hw.gpu.memory.utilization from 0 to 1, all of the
// whole device as it was last read, and hw.status: failed if its context is lost, or
// else ok. hw.id is the device's UUID, as nvidia-smi prints it; devices without one
// are left out. Open adds it where OTEL_SEMCONV_STABILITY_OPT_IN lists hardware.
//
// It is as safe for concurrent use as g, and blocks as long as g does.
func NewHardwareProducer(g prometheus.Gatherer) sdkmetric.Producer { return hardware{g} }

type hardware struct{ gatherer prometheus.Gatherer }

// gpu is what the metrics of a runtime say of its device.
type gpu struct {
	uuid, name  string
	free, total float64
	read, lost  bool
}

// gpus are the devices by their numbers.
func gpus(g prometheus.Gatherer) (map[string]*gpu, error) {
	families, err := g.Gather()
	found := map[string]*gpu{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			device := labelOf(m, "device")
			if found[device] == nil {
				found[device] = &gpu{}
			}
			d, value := found[device], m.GetGauge().GetValue()
			switch f.GetName() {
			case "gpumem_device_info":
				d.uuid, d.name = labelOf(m, "uuid"), labelOf(m, "device_name")
			case "gpumem_device_free_bytes":
				d.free = value
			case "gpumem_device_total_bytes":
				d.total, d.read = value, true
			case "gpumem_device_lost":
				d.lost = value == 1
			}
		}
	}
	for device, d := range found {
		if d.uuid == "" {
			delete(found, device)
		}
	}
	return found, err
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Produce collects once.
func (h hardware) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	devices, err := gpus(h.gatherer)
	now := time.Now()
	var limit, usage, status []metricdata.DataPoint[int64]
	var utilization []metricdata.DataPoint[float64]
	for _, d := range devices {
		about := []attribute.KeyValue{semconv.HwID(d.uuid), semconv.HwName(d.name)}
		whole := func(value int64, more ...attribute.KeyValue) metricdata.DataPoint[int64] {
			return metricdata.DataPoint[int64]{Attributes: attribute.NewSet(slices.Concat(about, more)...), Time: now, Value: value}
		}
		if d.read {
			limit, usage = append(limit, whole(int64(d.total))), append(usage, whole(int64(d.total-d.free)))
			utilization = append(utilization, metricdata.DataPoint[float64]{Attributes: attribute.NewSet(about...), Time: now, Value: (d.total - d.free) / max(d.total, 1)})
		}
		failed := int64(0)
		if d.lost {
			failed = 1
		}
		status = append(status, whole(failed, semconv.HwTypeGpu, semconv.HwStateFailed), whole(1-failed, semconv.HwTypeGpu, semconv.HwStateOk))
	}
	if len(devices) == 0 {
		return nil, err
	}
	sum := func(of []metricdata.DataPoint[int64]) metricdata.Aggregation {
		return metricdata.Sum[int64]{DataPoints: of, Temporality: metricdata.CumulativeTemporality}
	}
	return []metricdata.ScopeMetrics{{
		Scope: instrumentation.Scope{Name: "github.com/fencepost-gpu/fencepost/telemetry/otlpmetrics", Version: version.Fencepost(), SchemaURL: semconv.SchemaURL},
		Metrics: []metricdata.Metrics{
			{Name: "hw.gpu.memory.limit", Unit: "By", Description: "Size of the GPU memory.", Data: sum(limit)},
			{Name: "hw.gpu.memory.usage", Unit: "By", Description: "GPU memory used.", Data: sum(usage)},
			{Name: "hw.gpu.memory.utilization", Unit: "1", Description: "Fraction of GPU memory used.", Data: metricdata.Gauge[float64]{DataPoints: utilization}},
			{Name: "hw.status", Unit: "1", Description: "Operational status: 1 (true) or 0 (false) for each of the possible states.", Data: sum(status)},
		},
	}}, err
}
