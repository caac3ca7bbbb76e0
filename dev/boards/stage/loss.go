package main

import (
	"context"
	"errors"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

// What is done in these scenes is lost on its way out.
var lossScenes = []scene{
	{name: "droplog", act: work, configure: func(p *player, cfg *fencepost.Config) {
		p.sink = logging.NewJSONSink(hangingWriter{p}, logging.Queue{Size: 64})
		cfg.LogSinks = []logging.Sink{p.sink}
	}},
	{name: "failspans", act: work, configure: func(p *player, cfg *fencepost.Config) {
		exportTo(p, cfg, 0, func() error {
			if p.acted.Load() {
				return errors.New("the collector is away")
			}
			return nil
		})
	}},
	{name: "stuckspans", act: work, configure: func(p *player, cfg *fencepost.Config) {
		exportTo(p, cfg, 4096, func() error { p.hang(); return nil })
	}},
}

// hang does not return before the scene ends, once its action has begun.
func (p *player) hang() {
	if p.acted.Load() {
		<-p.unblock
	}
}

type hangingWriter struct{ *player }

func (w hangingWriter) Write(b []byte) (int, error) { w.hang(); return len(b), nil }

// exporter takes spans as the function does.
type exporter func() error

func (e exporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return e() }
func (e exporter) Shutdown(context.Context) error                             { return nil }

// exportTo traces everything and hands the spans to an exporter.
func exportTo(p *player, cfg *fencepost.Config, queue int, e exporter) {
	p.spans = spanpipe.New(e, spanpipe.Config{Queue: queue})
	p.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p.spans))
	cfg.TracerProvider = p.tracer
}

func traced(p *player, cfg *fencepost.Config) { exportTo(p, cfg, 0, func() error { return nil }) }
