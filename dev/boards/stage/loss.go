package main

import (
	"context"
	"errors"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
)

func lossScenes() []scene {
	return []scene{
		{name: "droplog", configure: stuckLog, act: actWork},
		{name: "failspans", configure: func(p *player, cfg *fencepost.Config) { exportTo(p, cfg, &refusing{p}, 0) }, act: actWork},
		{name: "stuckspans", configure: func(p *player, cfg *fencepost.Config) { exportTo(p, cfg, &stuck{p}, 4096) }, act: actWork},
	}
}

// begun says whether the scene's action was played.
func (p *player) begun() bool { return p.acted.Load() }

// stuckLog has a sink whose writer hangs once the action has begun.
func stuckLog(p *player, cfg *fencepost.Config) {
	p.sink = logging.NewJSONSink(stuckWriter{p}, logging.Queue{Size: 64})
	cfg.LogSinks = []logging.Sink{p.sink}
}

type stuckWriter struct{ p *player }

func (w stuckWriter) Write(b []byte) (int, error) {
	if w.p.begun() {
		<-w.p.unblock
	}
	return len(b), nil
}

// refusing is an exporter that fails once the action has begun.
type refusing struct{ p *player }

func (e *refusing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	if e.p.begun() {
		return errors.New("the collector is away")
	}
	return nil
}
func (e *refusing) Shutdown(context.Context) error { return nil }

// stuck is an exporter that hangs once the action has begun.
type stuck struct{ p *player }

func (e *stuck) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	if e.p.begun() {
		<-e.p.unblock
	}
	return nil
}
func (e *stuck) Shutdown(context.Context) error { return nil }
