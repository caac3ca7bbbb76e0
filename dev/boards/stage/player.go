package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

// player is a scene with its runtime.
type player struct {
	scene   scene
	device  *sim.Device
	slow    *slowDriver
	faults  *drivertest.Faults
	rt      *fencepost.Runtime
	spans   *spanpipe.Pipe // nil if nothing is traced, and the tracer
	tracer  *sdktrace.TracerProvider
	sink    logging.Sink // nil but for one
	folder  string
	metrics http.Handler
	others  *otherMetrics
	// ctx ends with the scene.
	ctx     context.Context //nolint:containedctx // of loops that outlive the call that begins them
	stop    context.CancelFunc
	acted   atomic.Bool // the action has begun
	ended   atomic.Bool // the page of metrics is away
	loops   sync.WaitGroup
	mu      sync.Mutex
	kept    []*cuda.Lease
	learned *admit.Model  // of the jobs of a scene
	unblock chan struct{} // closed at the end: ends writers that hang
}

// open makes the scene's folder, for incidents, and its runtime.
func open(ctx context.Context, s scene, folder string) (*player, error) {
	// All scenes are in one process, in which devices of one number would be the same.
	sum := sha256.Sum256([]byte(s.name))
	uuid := fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	p := &player{scene: s, folder: folder, unblock: make(chan struct{})}
	err := os.Mkdir(folder, 0o700)
	if err != nil {
		return nil, err
	}
	if p.device, err = sim.Open(sim.Config{Bytes: 256 * mib, UUID: uuid}); err != nil {
		return nil, err
	}
	p.slow = &slowDriver{Driver: p.device}
	p.faults = drivertest.NewFaults(p.slow)
	cfg := fencepost.Config{Driver: p.faults, Resource: fencepost.Async, Guard: "ledger", CloseTimeout: 2 * time.Second}
	if s.configure != nil {
		s.configure(p, &cfg)
	}
	if p.rt, err = fencepost.Open(ctx, cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if err := p.export(uuid); err != nil {
		return nil, err
	}
	p.ctx, p.stop = context.WithCancel(ctx)
	begin := &steps{player: p}
	if !s.idle {
		on := begin.lease("base")
		begin.loop(beat, func(s *steps) { s.once(on, "base", beatBytes) })
	}
	return p, begin.err
}

// export makes the page of metrics.
func (p *player) export(uuid string) error {
	registry := prometheus.NewRegistry()
	p.others = newOtherMetrics(registry, uuid)
	page := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	p.metrics = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.ended.Load() {
			http.Error(w, "the process has ended", http.StatusServiceUnavailable)
			return
		}
		page.ServeHTTP(w, r)
	})
	if p.spans != nil {
		if err := registry.Register(metrics.NewSpanCollector(p.spans.Counts)); err != nil {
			return err
		}
	}
	return registry.Register(p.rt.Collector())
}

// act plays the scene's action.
func (p *player) act() error {
	p.acted.Store(true)
	s := &steps{player: p}
	if p.scene.act(s); s.err != nil {
		return fmt.Errorf("%s: %w", p.scene.name, s.err)
	}
	return nil
}

// close ends the scene. What scenes leave behind is what they are about, so
// the errors are not.
func (p *player) close(ctx context.Context) {
	p.stop()
	close(p.unblock)
	p.faults.Clear()
	p.loops.Wait()
	for _, on := range p.kept {
		_ = on.Release()
	}
	_, _ = p.rt.Close(ctx)
	if p.sink != nil {
		_ = p.sink.Close(ctx)
	}
	if p.tracer != nil {
		_ = p.tracer.Shutdown(ctx)
	}
	_ = p.device.Close()
}
