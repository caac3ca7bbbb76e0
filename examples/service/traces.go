package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/fencepost-gpu/fencepost/telemetry/spancount"
)

// The queue is larger than the SDK's default of 2048, which loses spans under
// load without a word; what is lost all the same is counted. A batch stays below
// the 4 MiB that receivers of gRPC take by default: a span has up to 1 KiB.
const (
	spanQueue = 65536
	spanBatch = 2048
)

// batching is that, where the standard variables say nothing else.
func batching() (options []sdktrace.BatchSpanProcessorOption) {
	if os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE") == "" {
		options = append(options, sdktrace.WithMaxQueueSize(spanQueue))
	}
	if os.Getenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE") == "" {
		options = append(options, sdktrace.WithMaxExportBatchSize(spanBatch))
	}
	return options
}

// traces make the service's spans, and count what becomes of them.
type traces struct {
	provider *sdktrace.TracerProvider
	counter  spancount.Counter
	// about is the service, as spans and pushed metrics name it.
	about *resource.Resource
}

// newTraces makes a provider that exports where the standard variables say,
// and nowhere without them. extra, if not nil, gets the spans too.
func newTraces(ctx context.Context, share float64, extra sdktrace.SpanProcessor) (*traces, error) {
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(semconv.ServiceName("fencepost-service")),
		resource.WithFromEnv()) // last: the variables win
	if err != nil {
		return nil, fmt.Errorf("the OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &traces{about: about}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(about)}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share))))
	}
	if extra != nil {
		options = append(options, sdktrace.WithSpanProcessor(t.counter.Processor(extra)))
	}
	if exportConfigured() {
		exporter, err := newExporter(ctx)
		if err != nil {
			return nil, fmt.Errorf("the OTLP exporter: %w", err)
		}
		batch := sdktrace.NewBatchSpanProcessor(t.counter.Exporter(exporter), batching()...)
		options = append(options, sdktrace.WithSpanProcessor(t.counter.Processor(batch)))
	}
	t.provider = sdktrace.NewTracerProvider(options...)
	return t, nil
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
	protocol := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	switch strings.ToLower(protocol) {
	case "", "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%q: say grpc or http/protobuf", protocol)
}

// close flushes what is queued until ctx ends.
func (t *traces) close(ctx context.Context) error {
	return errors.Join(t.provider.ForceFlush(ctx), t.provider.Shutdown(ctx))
}
