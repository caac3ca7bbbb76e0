package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
	"github.com/fencepost-gpu/fencepost/telemetry/otlpmetrics"
)

// readTime is how long the headers of a request may take to come, and with its
// body twice that.
const readTime = 5 * time.Second

// server serves the operators' pages while the demo runs.
type server struct {
	http http.Server
	// url is empty if nothing is served.
	url string
	// stopPushing sends metrics a last time to a collector, if the variables ask for it.
	stopPushing func(context.Context) error
}

func serve(ctx context.Context, address string, rt *fencepost.Runtime, spans *spanPipe) (*server, error) {
	registry, err := newRegistry(rt, spans)
	if err != nil {
		return nil, err
	}
	s := &server{}
	if s.stopPushing, err = otlpmetrics.Open(ctx, registry, nil); err != nil || address == "" {
		return s, err
	}
	handler, err := fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{rt}, Gatherer: registry, SwitchGuard: true, Incidents: onLoopback(address)})
	if err != nil {
		return nil, errors.Join(err, s.stopPushing(ctx))
	}
	listener, err := listen(ctx, address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--listen: %w; name another address, or none with --listen=", err), s.stopPushing(ctx))
	}
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.Handle("GET /{$}", http.RedirectHandler("/debug/gpumem/", http.StatusFound))
	// A profile takes its time behind the request, which these bound.
	s.http = http.Server{Handler: mux, ReadHeaderTimeout: readTime, ReadTimeout: 2 * readTime, IdleTimeout: time.Minute}
	s.url = "http://" + listener.Addr().String()
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("serving metrics", "error", err)
		}
	}()
	return s, nil
}

// listen opens an address that names its host: without one it would be that of
// every network, which is to be said and not to be forgotten.
func listen(ctx context.Context, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return nil, fmt.Errorf("%q can be reached from everywhere: say 127.0.0.1:%s, or 0.0.0.0:%s if that is meant", address, port, port)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// onLoopback reports whether an address is reached from this machine alone.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// lost is the spans that came out nowhere.
func (p *spanPipe) lost() uint64 {
	c := p.pipe.Counts()
	return c.Failed + c.Dropped
}

func (s *server) close() { _ = s.http.Close() }

// newRegistry has the metrics of a run, to be scraped and to be pushed.
func newRegistry(rt *fencepost.Runtime, spans *spanPipe) (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{rt.Collector(), metrics.NewSpanCollector(spans.pipe.Counts)} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return registry, nil
}
