package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

// traces make the service's spans, and count what becomes of them.
type traces struct {
	provider *sdktrace.TracerProvider
	pipe     *spanpipe.Pipe // nil if spans go nowhere
	// about is the service, as spans and pushed metrics name it.
	about *resource.Resource
}

// newTraces makes a provider that exports to exporter, or if that is nil where
// the standard variables say, and nowhere without them.
func newTraces(ctx context.Context, share float64, exporter sdktrace.SpanExporter) (*traces, error) {
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(semconv.ServiceName("fencepost-service")),
		resource.WithFromEnv()) // last: the variables win
	if err != nil {
		return nil, fmt.Errorf("the OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(about)}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share))))
	}
	if exporter == nil && exportConfigured() {
		if exporter, err = newExporter(ctx); err != nil {
			return nil, fmt.Errorf("the OTLP exporter: %w", err)
		}
	}
	t := &traces{about: about}
	if exporter != nil {
		t.pipe = spanpipe.New(exporter, spanpipe.Config{})
		options = append(options, sdktrace.WithSpanProcessor(t.pipe))
	}
	t.provider = sdktrace.NewTracerProvider(options...)
	return t, nil
}

// counts is what became of the spans: of none if they go nowhere.
func (t *traces) counts() metrics.SpanCounts {
	if t.pipe == nil {
		return metrics.SpanCounts{}
	}
	return t.pipe.Counts()
}

// lost is the spans that came out nowhere.
func (t *traces) lost() uint64 {
	c := t.counts()
	return c.Failed + c.Dropped
}

// exportConfigured follows the variables that switch exporting on and off.
func exportConfigured() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || strings.EqualFold(os.Getenv("OTEL_TRACES_EXPORTER"), "none") {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// newExporter follows the protocol variables; the others the exporters read
// themselves.
func newExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	switch strings.ToLower(protocol) {
	case "", "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%q: say grpc or http/protobuf", protocol)
}

// close exports what is queued until ctx ends. A flush before it could take all of ctx, and a
// provider that is shut down with a context that has ended exports nothing.
func (t *traces) close(ctx context.Context) error { return t.provider.Shutdown(ctx) }
