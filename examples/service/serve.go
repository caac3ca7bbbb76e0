package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/web"
	"github.com/fencepost-gpu/fencepost/telemetry/otlpmetrics"
)

// stepTimeout is what each step of the end may take, once the requests have
// ended or were told to.
const stepTimeout = 5 * time.Second

// service is everything that runs, in the order in which it was opened.
type service struct {
	options     options
	traces      *traces
	rt          *fencepost.Runtime
	engine      *device.Engine
	web         *web.Server
	stopPushing func(context.Context) error // metrics to a collector; nil if they could not be
	pause       func(time.Duration)         // time.Sleep
}

// serve runs the service until ctx ends.
func serve(ctx context.Context, o options) error {
	s, err := open(ctx, o, nil)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return errors.Join(fmt.Errorf("-listen: %w", err), s.close())
	}
	slog.Info("serving", "url", "http://"+listener.Addr().String(), "device", s.rt.DeviceChoice().String(), "stack", s.rt.String())
	if o.plantOverrun > 0 {
		slog.Warn("a bug is planted: -plant-overrun", "sorts", o.plantOverrun)
	}
	return errors.Join(s.serve(ctx, listener), s.close())
}

// open opens the stack, whose spans go to spans, or if that is nil where the
// variables say. An error leaves nothing behind.
func open(ctx context.Context, o options, spans sdktrace.SpanExporter) (s *service, err error) {
	s = &service{options: o, pause: time.Sleep}
	if s.traces, err = newTraces(ctx, o.share, spans); err != nil {
		return nil, err
	}
	o.stack.TracerProvider, o.stack.TelemetryLost = s.traces.provider, s.traces.lost
	o.stack.Findings.Logger = slog.Default() // findings, and every change of health
	if s.rt, err = fencepost.Open(ctx, o.stack); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if p, err := s.rt.Driver().Properties(); err == nil && s.traces.pipe != nil {
		s.traces.pipe.IdentifyGPU(p.UUID)
	}
	if s.engine, err = device.New(device.Config{Runtime: s.rt, TracerProvider: s.traces.provider, Patience: o.patience, PlantOverrun: o.plantOverrun}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.web, err = web.New(web.Config{Runtime: s.rt, Engine: s.engine, TracerProvider: s.traces.provider,
		SpanCounts: s.traces.counts, Limits: o.limits, SwitchGuard: o.switchGuard})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	if s.stopPushing, err = otlpmetrics.Open(ctx, s.web.Metrics(), s.traces.about); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// serve answers requests until ctx ends, and then lets those under way end.
func (s *service) serve(ctx context.Context, listener net.Listener) error {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	server := &http.Server{
		Handler:           s.web.Handler(),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 5 * time.Second,
		// The handlers bound reading and working; this bounds writing too.
		WriteTimeout: s.options.limits.Timeout + 30*time.Second,
		IdleTimeout:  2 * time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	slog.Info("stopping", "drain", s.options.drain, "timeout", s.options.stop)
	s.web.Stopping()
	s.pause(s.options.drain)
	return s.shutDown(context.WithoutCancel(ctx), server, cancel)
}

// shutDown waits for the requests under way, and then tells those that are
// left to give up.
func (s *service) shutDown(ctx context.Context, server *http.Server, cancel context.CancelCauseFunc) error {
	limited, done := context.WithTimeout(ctx, s.options.stop)
	defer done()
	err := server.Shutdown(limited)
	if err == nil {
		return nil
	}
	cancel(web.ErrStopping)
	moment, done := context.WithTimeout(ctx, s.options.step)
	defer done()
	// They may still answer; then there is nothing to wait for.
	return errors.Join(fmt.Errorf("requests were cut short after %v: %w", s.options.stop, err), s.web.Wait(moment), server.Shutdown(moment), server.Close())
}

// close ends everything, in the order opposite to open's, each within its
// time. What the runtime had left is an error: every request should have given
// everything back.
func (s *service) close() error {
	var errs []error
	if s.rt != nil {
		errs = append(errs, s.within(func(ctx context.Context) error {
			left, err := s.rt.Close(ctx)
			return errors.Join(err, leaks(left))
		}))
	}
	if s.stopPushing != nil {
		errs = append(errs, s.within(s.stopPushing))
	}
	return errors.Join(append(errs, s.within(s.traces.close))...)
}

// within runs a step of the end, in its time.
func (s *service) within(end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.step)
	defer cancel()
	return end(ctx)
}

// leaks reports what was never given back; the log has the details, with
// stacks as far as they were kept.
func leaks(left core.Leftover) error {
	for _, leak := range left.Leaks {
		slog.Error("leaked", "tag", leak.Block.Tag, "bytes", leak.Block.Requested, "generation", leak.Block.ID.Generation, "stack", strings.Join(leak.AllocStack.Lines(), "\n"))
	}
	if left.LeakedBytes == 0 && left.OpenIntents == 0 {
		slog.Info("closed: nothing was leaked")
		return nil
	}
	return fmt.Errorf("leaked %d bytes in %d blocks, and %d uses without an end", left.LeakedBytes, len(left.Leaks), left.OpenIntents)
}
