package web

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
)

// Server answers the requests. It is safe for concurrent use.
type Server struct {
	rt       *fencepost.Runtime
	engine   *device.Engine
	provider trace.TracerProvider
	limits   Limits
	house    *house
	metrics  *series
	registry *prometheus.Registry
	stopping atomic.Bool
	// operators serves metrics, health and the pages of package fencepost.
	operators http.Handler
}

// New returns a server. Errors are those of limits that nothing could keep,
// and of metrics that cannot be registered.
func New(cfg Config) (*Server, error) {
	if err := cfg.Limits.check(cfg.Engine); err != nil {
		return nil, err
	}
	s := &Server{rt: cfg.Runtime, engine: cfg.Engine, provider: cfg.TracerProvider, limits: cfg.Limits,
		house: newHouse(cfg.Limits), metrics: newSeries(), registry: prometheus.NewRegistry()}
	if err := s.registerMetrics(cfg); err != nil {
		return nil, err
	}
	var err error
	s.operators, err = fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{cfg.Runtime}, Gatherer: s.registry,
		SwitchGuard: cfg.SwitchGuard, Ready: []func() error{s.isStopping}})
	return s, err
}

// Handler is the service's routes, and what its operators look at. A service
// with a public port would serve those, and [api.RouteDebug] above all, on
// another.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+api.RouteSort, s.endpoint(api.RouteSort, s.sort))
	mux.Handle("POST "+api.RouteJoin, s.endpoint(api.RouteJoin, s.join))
	for _, path := range []string{api.RouteMetrics, api.RouteHealth, api.RouteReady, api.RouteDebug} {
		mux.Handle(path, s.operators)
	}
	return mux
}

// Stopping makes the service answer that it is not ready, so that whoever
// sends it requests goes elsewhere. Requests are still served.
func (s *Server) Stopping() { s.stopping.Store(true) }

func (s *Server) isStopping() error {
	if s.stopping.Load() {
		return ErrStopping
	}
	return nil
}

// Wait waits until no request is being served, or ctx ends. None may come in
// any more.
func (s *Server) Wait(ctx context.Context) error { return s.house.empty(ctx) }

// work is what an endpoint does of its own: it answers, or returns why not.
type work func(w http.ResponseWriter, r *http.Request) error

// endpoint puts around work what all endpoints have; see the package comment.
func (s *Server) endpoint(route string, do work) http.Handler {
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.admitted(w, r, do); err != nil {
			s.refuse(w, r, err)
		}
	})
	return otelhttp.NewHandler(s.metrics.measured(route, inner), "POST "+route,
		otelhttp.WithTracerProvider(s.provider),
		otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})))
}

func (s *Server) admitted(w http.ResponseWriter, r *http.Request, do work) error {
	leave, err := s.house.enter()
	if err != nil {
		return err
	}
	defer leave()
	r, cancel, err := s.withDeadline(r)
	if err != nil {
		return err
	}
	defer cancel()
	return do(w, r)
}

func (s *Server) sort(w http.ResponseWriter, r *http.Request) error {
	data, form, err := s.body(w, r)
	if err != nil {
		return err
	}
	in, err := s.readSort(data, form, r)
	if err != nil {
		return err
	}
	err = s.onDevice(r.Context(), api.RouteSort, in.rows(), func(ctx context.Context) (err error) {
		if in.kind == api.Uint64 {
			in.keys64, err = s.engine.Sort64(ctx, in.keys64)
			return err
		}
		in.keys32, err = s.engine.Sort32(ctx, in.keys32)
		return err
	})
	if err == nil {
		answerSort(w, form, in)
	}
	return err
}

func (s *Server) join(w http.ResponseWriter, r *http.Request) error {
	data, form, err := s.body(w, r)
	if err != nil {
		return err
	}
	tables, err := s.readJoin(data, form, r)
	if err != nil {
		return err
	}
	var values []uint32
	err = s.onDevice(r.Context(), api.RouteJoin, len(tables.Left)+len(tables.RightKeys), func(ctx context.Context) (err error) {
		values, err = s.engine.Join(ctx, tables)
		return err
	})
	if err == nil {
		answerJoin(w, form, values)
	}
	return err
}

// onDevice runs the request's work when it is its turn. The turn ends with the
// work: a client that reads slowly keeps nobody off the device.
func (s *Server) onDevice(ctx context.Context, route string, rows int, do func(context.Context) error) error {
	done, err := s.house.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := do(ctx); err != nil {
		return err
	}
	s.metrics.rows.WithLabelValues(route).Add(float64(rows))
	return nil
}
