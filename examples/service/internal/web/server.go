// Package web is the HTTP side of the example service: it reads requests,
// bounds what they may cost, runs them on the device and says no in a way that
// explains itself.
//
// What a request passes, in order, and what each step bounds:
//
//	tracing         the request's span, under which the device's spans go
//	metrics         its duration, with the trace as exemplar
//	admission       how many requests are in the house: 429
//	deadline        how long it may take in all: 408 while uploading, 504 later
//	input           how large it may be, and what it must look like: 4xx
//	a turn          how many are on the device; the rest wait here
//	a reservation   the device memory of the whole request: 503, 413
//
// Admission comes before the body is read, so that it bounds the memory of
// the host; the reservation comes before anything is allocated, so that it
// bounds that of the device.
package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// Config is what a [Server] is made of.
type Config struct {
	// Runtime and Engine do the work; they stay the caller's to close.
	// Required.
	Runtime *fencepost.Runtime
	Engine  *device.Engine
	// TracerProvider makes the requests' spans. Required.
	TracerProvider trace.TracerProvider
	// SpanCounts reads what became of the spans, for the metrics; nil leaves
	// those metrics out.
	SpanCounts func() metrics.SpanCounts
	Limits     Limits
	// SwitchGuard lets requests from this machine switch the debug guard.
	SwitchGuard bool
}

// Limits bound what requests may cost.
type Limits struct {
	// MaxBody is the bytes of a request's body, MaxRows the rows of each of
	// its columns.
	MaxBody int64
	MaxRows int
	// Waiting is how many requests may be in the house beside those on the
	// device, which are as many as there are streams for. The rest get 429.
	Waiting int
	// Timeout is how long a request may take, from its headers to the last
	// byte that the device gives; clients can ask for less.
	Timeout time.Duration
}

// DefaultLimits fit a small device.
var DefaultLimits = Limits{MaxBody: 64 << 20, MaxRows: 4 << 20, Waiting: 64, Timeout: 10 * time.Second}

// Check returns the error for limits that nothing could keep.
func (l Limits) Check() error {
	switch {
	case l.MaxBody < 1:
		return fmt.Errorf("a body of at most %d bytes: allow at least 1", l.MaxBody)
	case l.MaxRows < 1 || l.MaxRows > device.MaxRows:
		return fmt.Errorf("at most %d rows: say 1 to %d", l.MaxRows, device.MaxRows)
	case l.Waiting < 0:
		return fmt.Errorf("%d waiting requests: say 0 or more", l.Waiting)
	case l.Timeout <= 0:
		return fmt.Errorf("a timeout of %v: say more than 0", l.Timeout)
	}
	return nil
}

// Server answers the requests. It is safe for concurrent use.
type Server struct {
	cfg Config
	// places has one element for each request inside, turns for each on the
	// device.
	places, turns chan struct{}
	metrics       *series
	registry      *prometheus.Registry
	stopping      atomic.Bool
	// operators serves metrics, health and the pages of package fencepost.
	operators http.Handler
}

// New returns a server. Errors are those of [Limits.Check], and of metrics that
// cannot be registered.
func New(cfg Config) (*Server, error) {
	if err := cfg.Limits.Check(); err != nil {
		return nil, err
	}
	turns := cfg.Engine.MaxJobs()
	s := &Server{cfg: cfg, places: make(chan struct{}, turns+cfg.Limits.Waiting), turns: make(chan struct{}, turns),
		metrics: newSeries(), registry: prometheus.NewRegistry()}
	if err := s.registerMetrics(); err != nil {
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
	mux.Handle("POST "+api.RouteSort, endpoint(s, api.RouteSort, s.checkSort, s.sort))
	mux.Handle("POST "+api.RouteJoin, endpoint(s, api.RouteJoin, s.checkJoin, s.join))
	for _, path := range []string{api.RouteMetrics, api.RouteHealth, api.RouteReady, api.RouteDebug} {
		mux.Handle(path, s.operators)
	}
	return mux
}

// Stopping makes the service answer that it is not ready, so that a load balancer
// sends requests elsewhere. Requests are still served.
func (s *Server) Stopping() { s.stopping.Store(true) }

func (s *Server) isStopping() error {
	if s.stopping.Load() {
		return ErrStopping
	}
	return nil
}

// Wait waits until no request is being served, or ctx ends. None may come in
// any more.
func (s *Server) Wait(ctx context.Context) error {
	for len(s.places) > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d requests have not ended: %w", len(s.places), ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// endpoint puts around work what all endpoints have; see the package comment. check
// says how many rows a request has, or why it is none.
func endpoint[In, Out any](s *Server, route string, check func(*In) (rows int, err error), work func(context.Context, *In) (Out, error)) http.Handler {
	run := func(ctx context.Context, in *In) (out Out, err error) {
		rows, err := check(in)
		if err != nil {
			return out, err
		}
		// The turn ends with the work: a client that reads slowly keeps no other
		// request off the device.
		select {
		case s.turns <- struct{}{}:
			defer func() { <-s.turns }()
		case <-ctx.Done():
			return out, fmt.Errorf("waiting for a turn on the device: %w", ctx.Err())
		}
		if out, err = work(ctx, in); err == nil {
			s.metrics.rows.WithLabelValues(route).Add(float64(rows))
		}
		return out, err
	}
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.places <- struct{}{}:
			defer func() { <-s.places }() // when the answer is written: until then it takes memory
		default:
			no := refused(http.StatusTooManyRequests, api.CodeTooMany, "%d requests are being served or wait already", cap(s.places))
			no.retry = true
			s.refuse(w, r, no)
			return
		}
		if err := serve(s, w, r, run); err != nil {
			s.refuse(w, r, err)
		}
	})
	return otelhttp.NewHandler(s.metrics.measured(route, inner), "POST "+route,
		otelhttp.WithTracerProvider(s.cfg.TracerProvider),
		otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})))
}

// serve reads a request, does its work and answers, or returns why not.
func serve[In, Out any](s *Server, w http.ResponseWriter, r *http.Request, run func(context.Context, *In) (Out, error)) error {
	ctx, cancel, err := s.deadline(r)
	if err != nil {
		return err
	}
	defer cancel()
	var in In
	if err := s.read(ctx, w, r, &in); err != nil {
		return err
	}
	out, err := run(ctx, &in)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", api.JSON)
	_ = json.NewEncoder(w).Encode(out) //nolint:errchkjson // the client went away
	return nil
}

func (s *Server) checkSort(in *api.SortRequest) (int, error) {
	if in.Keys == nil {
		return 0, malformed("there are no keys")
	}
	return len(in.Keys), s.checkRows("keys", len(in.Keys))
}

func (s *Server) sort(ctx context.Context, in *api.SortRequest) (out api.SortRequest, err error) {
	out.Keys, err = s.cfg.Engine.Sort(ctx, in.Keys)
	return out, err
}

func (s *Server) checkJoin(in *api.JoinRequest) (int, error) {
	for name, column := range map[string][]uint32{"left": in.Left, "right_keys": in.RightKeys} {
		if err := s.checkRows(name, len(column)); err != nil {
			return 0, err
		}
	}
	return len(in.Left) + len(in.RightKeys), device.Tables(*in).Check()
}

func (s *Server) join(ctx context.Context, in *api.JoinRequest) (out api.JoinResponse, err error) {
	values, err := s.cfg.Engine.Join(ctx, device.Tables(*in))
	out.Values = make([]*uint32, len(values))
	for i, v := range values {
		if v != device.NoPartner {
			out.Values[i] = &values[i]
		}
	}
	return out, err
}

func (s *Server) checkRows(column string, n int) error {
	if n > s.cfg.Limits.MaxRows {
		return refused(http.StatusRequestEntityTooLarge, api.CodeTooLarge, "%s: %d rows, at most %d", column, n, s.cfg.Limits.MaxRows)
	}
	return nil
}
