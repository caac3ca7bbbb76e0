package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/output"
	"github.com/fencepost-gpu/fencepost/telemetry/spanfile"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

// spanPipe is what makes the demo's spans, and their way out of the process.
type spanPipe struct {
	provider *sdktrace.TracerProvider
	pipe     *spanpipe.Pipe
	file     *output.File
	// begun: the demo has begun a request, and so its spans take the place of what the file held.
	begun atomic.Bool
}

// openSpans makes a provider that samples a share of the traces, and exports
// them to a file, to a collector, to both or to nowhere.
func openSpans(ctx context.Context, path string, share float64) (*spanPipe, error) {
	p := &spanPipe{}
	var exporters fanOut
	if path != "" {
		if err := p.createFile(path); err != nil {
			return nil, fmt.Errorf("--spans: %w", err)
		}
		exporters = append(exporters, spanfile.New(p.file))
	}
	if collectorConfigured() {
		exporter, err := newCollectorExporter(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the OTLP exporter: %w", err), p.discardFile())
		}
		exporters = append(exporters, exporter)
	}
	p.pipe = spanpipe.New(exporters, spanpipe.Config{})
	options := []sdktrace.TracerProviderOption{sdktrace.WithSpanProcessor(p.pipe)}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share))))
	}
	p.provider = sdktrace.NewTracerProvider(options...)
	return p, nil
}

func (p *spanPipe) createFile(path string) error {
	target, err := output.Find(path)
	if err != nil {
		return err
	}
	p.file, err = target.Create()
	return err
}

// publishing is a provider whose spans are in the file, under its name, once
// they are flushed. A runtime flushes when it closes and when it ends the process, and waits for
// that only so long: the name comes first, and what is written after it is added. A demo that was
// not run leaves the file as it was.
type publishing struct {
	*sdktrace.TracerProvider
	spans *spanPipe
}

// ForceFlush publishes the file and exports what is queued.
func (p publishing) ForceFlush(ctx context.Context) error {
	if !p.spans.begun.Load() {
		return p.TracerProvider.ForceFlush(ctx)
	}
	return errors.Join(p.spans.file.Publish(), p.TracerProvider.ForceFlush(ctx))
}

// tracers is the provider for a runtime.
func (p *spanPipe) tracers() trace.TracerProvider {
	if p.file == nil {
		return p.provider
	}
	return publishing{p.provider, p}
}

func collectorConfigured() bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// newCollectorExporter follows the protocol variables of the specification;
// the rest of them the exporters read themselves.
func newCollectorExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	switch strings.ToLower(protocol) {
	case "", "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%q: say grpc or http/protobuf", protocol)
}

// beginRequest starts a trace for one iteration of the work, as a service
// would for a request.
func (p *spanPipe) beginRequest(ctx context.Context) (context.Context, func()) {
	p.begun.Store(true)
	ctx, span := p.provider.Tracer("github.com/fencepost-gpu/fencepost/cmd/fencepost").Start(ctx, "demo.sort_and_join", trace.WithNewRoot())
	return ctx, func() { span.End() }
}

// close exports what is queued and ends it all.
func (p *spanPipe) close(ctx context.Context) error {
	err := p.provider.Shutdown(ctx)
	if p.file == nil {
		return err
	}
	return errors.Join(err, p.file.Commit())
}

// discard ends it all for a demo that was not run: a file that is there stays.
func (p *spanPipe) discard(ctx context.Context) error {
	return errors.Join(p.provider.Shutdown(ctx), p.discardFile())
}

func (p *spanPipe) discardFile() error {
	if p.file == nil {
		return nil
	}
	return p.file.Discard()
}

// fanOut exports to several places; none is fine.
type fanOut []sdktrace.SpanExporter

func (f fanOut) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	var errs []error
	for _, e := range f {
		errs = append(errs, e.ExportSpans(ctx, spans))
	}
	return errors.Join(errs...)
}

func (f fanOut) Shutdown(ctx context.Context) error {
	var errs []error
	for _, e := range f {
		errs = append(errs, e.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
