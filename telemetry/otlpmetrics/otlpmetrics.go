// Package otlpmetrics pushes the metrics of a Prometheus registry over OTLP, for
// programs that cannot be scraped. The registry stays the one place of metrics:
// what is pushed is what a scrape would have got, under the same names.
//
// Without a variable of the environment that asks for it nothing is pushed and
// nothing connects; see [Open]. The page docs/observe.md says what changes
// on the way.
package otlpmetrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Open pushes what g has, every minute, if the standard variables ask for it:
// OTEL_METRICS_EXPORTER=otlp, or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT while the
// former is not set. OTEL_METRICS_EXPORTER=none or prometheus, or
// OTEL_SDK_DISABLED=true, say no. OTEL_EXPORTER_OTLP_ENDPOINT alone asks for
// spans only, because who can scrape would have every metric twice.
//
// The exporter reads the other variables itself, such as
// OTEL_METRIC_EXPORT_INTERVAL, OTEL_EXPORTER_OTLP_METRICS_PROTOCOL (grpc or
// http/protobuf, the default) and those of endpoints, headers and certificates.
// about says whose metrics they are; nil is [resource.Default]. It is given the
// attribute hw.id, the UUID of the GPU, if there is one alone. Where
// OTEL_SEMCONV_STABILITY_OPT_IN lists hardware, the metrics of
// [NewHardwareProducer] are pushed too.
//
// Open does not connect, and does not fail because no collector listens: what goes
// wrong later goes to OpenTelemetry's error handler. Variables that say what
// cannot be done are an error.
//
// It returns what must be called once at the end, which pushes a last time, until
// its context ends.
func Open(ctx context.Context, g prometheus.Gatherer, about *resource.Resource) (stop func(context.Context) error, err error) {
	wanted, err := wanted()
	if err != nil {
		return nil, err
	}
	if !wanted {
		return func(context.Context) error { return nil }, nil
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("the OTLP exporter of metrics: %w", err)
	}
	producers := []sdkmetric.PeriodicReaderOption{sdkmetric.WithProducer(NewProducer(g))}
	if wantsHardware() {
		producers = append(producers, sdkmetric.WithProducer(NewHardwareProducer(g)))
	}
	if about, err = withDevice(about, g); err != nil {
		return nil, errors.Join(err, exporter.Shutdown(ctx))
	}
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter, producers...)), sdkmetric.WithResource(about)).Shutdown, nil
}

// withDevice adds the identity of the GPU, if the metrics are of one alone.
func withDevice(about *resource.Resource, g prometheus.Gatherer) (*resource.Resource, error) {
	if about == nil {
		about = resource.Default()
	}
	devices, err := gpus(g)
	if err != nil || len(devices) != 1 {
		return about, nil //nolint:nilerr // what cannot be gathered is for each push to report
	}
	for _, d := range devices {
		about, err = resource.Merge(resource.NewSchemaless(semconv.HwID(d.uuid)), about) // whose own is the stronger
	}
	return about, err
}

// wanted follows the variables that switch pushing on and off.
func wanted() (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch exporter := os.Getenv("OTEL_METRICS_EXPORTER"); strings.ToLower(exporter) {
	case "otlp":
		return true, nil
	case "none", "prometheus": // which is served in any case
		return false, nil
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") != "", nil
	default:
		return false, fmt.Errorf("OTEL_METRICS_EXPORTER=%q: say otlp, prometheus or none", exporter)
	}
}

// newExporter follows the protocol variables.
func newExporter(ctx context.Context) (sdkmetric.Exporter, error) {
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	switch strings.ToLower(protocol) {
	case "", "http/protobuf":
		return otlpmetrichttp.New(ctx)
	case "grpc":
		return otlpmetricgrpc.New(ctx)
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=%q: say grpc or http/protobuf", protocol)
}
