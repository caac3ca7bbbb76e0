package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/telemetry/otlpmetrics"
)

// server serves metrics, health and the guard while the demo runs.
type server struct {
	http http.Server
	// url is empty if nothing is served.
	url string
	// push sends metrics to a collector, if the variables ask for it.
	push *otlpmetrics.Exporter
}

func serve(ctx context.Context, address string, rt *fencepost.Runtime, spans *spanPipe) (*server, error) {
	registry, err := newRegistry(rt, spans)
	if err != nil {
		return nil, err
	}
	s := &server{}
	if s.push, err = otlpmetrics.Open(ctx, registry, nil); err != nil || address == "" {
		return s, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--listen: %w; name another address, or none with --listen=", err), s.push.Close(ctx))
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.Handle("/healthz", rt.HealthHandler())
	mux.Handle("/readyz", rt.ReadyHandler())
	mux.Handle("/guard", rt.GuardHandler())
	s.http = http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	s.url = "http://" + listener.Addr().String()
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("serving metrics", "error", err)
		}
	}()
	return s, nil
}

// lost is the spans that came out nowhere.
func (p *spanPipe) lost() uint64 {
	c := p.pipe.Counts()
	return c.Failed + c.Dropped
}

func (s *server) close() { _ = s.http.Close() }
