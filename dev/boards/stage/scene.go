package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

const (
	mib          = 1 << 20
	deviceBytes  = 256 * mib
	beat         = 50 * time.Millisecond
	beatBytes    = 64 << 10
	closeTimeout = 2 * time.Second
)

// scene is what is played on one runtime.
type scene struct {
	name string
	// configure changes the configuration; nil leaves it.
	configure func(*player, *fencepost.Config)
	// idle: nothing is done before the action.
	idle bool
	// act does what the scene is named for. What goes on is started with
	// player.loop.
	act func(context.Context, *player) error
}

// player is a scene with its runtime.
type player struct {
	scene   scene
	device  *sim.Device
	faults  *drivertest.Faults
	driver  *moody
	rt      *fencepost.Runtime
	spans   *spanpipe.Pipe // nil if nothing is traced
	tracer  *sdktrace.TracerProvider
	sink    logging.Sink // nil but for one
	folder  string
	metrics http.Handler
	others  *neighbours
	// ctx ends with the scene.
	ctx     context.Context //nolint:containedctx // of loops that outlive the call that begins them
	stop    context.CancelFunc
	acted   atomic.Bool
	loops   sync.WaitGroup
	mu      sync.Mutex
	kept    []*cuda.Lease
	unblock chan struct{} // closed at the end: ends writers that hang
}

// open makes the scene's runtime. Its folder, for incidents, exists.
func open(ctx context.Context, s scene, folder string) (*player, error) {
	p := &player{scene: s, folder: folder, unblock: make(chan struct{})}
	var err error
	if p.device, err = sim.Open(sim.Config{Bytes: deviceBytes, UUID: s.uuid()}); err != nil {
		return nil, err
	}
	p.driver = &moody{Driver: p.device}
	p.faults = drivertest.NewFaults(p.driver)
	cfg := fencepost.Config{Driver: p.faults, Guard: "ledger", CloseTimeout: closeTimeout}
	if s.configure != nil {
		s.configure(p, &cfg)
	}
	if p.rt, err = fencepost.Open(ctx, cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if err := p.export(); err != nil {
		return nil, err
	}
	p.ctx, p.stop = context.WithCancel(ctx)
	if s.idle {
		return p, nil
	}
	on, err := p.lease(p.ctx, "base")
	if err != nil {
		return nil, err
	}
	p.loop(p.ctx, beat, func() error { return p.once(p.ctx, on, "base", beatBytes) })
	return p, nil
}

// uuid is that of the scene's device: all scenes are in one process, in which
// devices of one number would be the same.
func (s scene) uuid() string {
	sum := sha256.Sum256([]byte(s.name))
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// export makes the page of metrics.
func (p *player) export() error {
	registry := prometheus.NewRegistry()
	p.others = newNeighbours()
	p.others.idle(p.scene.uuid())
	if err := p.others.register(registry); err != nil {
		return err
	}
	p.metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	if p.spans != nil {
		if err := registry.Register(metrics.NewSpanCollector(p.spans.Counts)); err != nil {
			return err
		}
	}
	return registry.Register(p.rt.Collector())
}
