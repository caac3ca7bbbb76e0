package bench

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// stack is what a benchmark measures: a runtime of [fencepost.Open], as a service has it, or a
// backend with some layers, put together by hand, which it is compared to.
type stack struct {
	streams *cuda.StreamPool
	runtime *core.Runtime
	// opened is nil for one that was put together by hand.
	opened *fencepost.Runtime
	// ctx is that of what is measured.
	ctx context.Context
}

// service opens a runtime as a service does: with the defaults of [fencepost.Open] and a provider
// of spans. Its operations belong to a request that is not sampled.
func service(tb testing.TB, drv driver.Driver, options ...func(*fencepost.Config)) *stack {
	tb.Helper()
	cfg := fencepost.Config{Driver: drv, Streams: 2048, TracerProvider: provider(sdktrace.AlwaysSample())}
	for _, set := range options {
		set(&cfg)
	}
	rt, err := fencepost.Open(context.Background(), cfg)
	fatal(tb, err)
	tb.Cleanup(func() {
		if found := rt.Findings().Counts(); len(found) > 0 {
			tb.Errorf("findings: %v", found)
		}
		_, err := rt.Close(context.Background())
		fatal(tb, err)
	})
	return &stack{streams: rt.Streams(), runtime: rt.Core(), opened: rt, ctx: unsampledParent()}
}

// over is an option of service: the backend.
func over(backend fencepost.Backend) func(*fencepost.Config) {
	return func(cfg *fencepost.Config) { cfg.Resource = backend }
}

// guarded is an option of service: the mode of the guard.
func guarded(mode fencepost.GuardMode) func(*fencepost.Config) {
	return func(cfg *fencepost.Config) { cfg.Guard = mode }
}

func provider(sampler sdktrace.Sampler) trace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler))
}

func ring(up core.Resource) (core.Resource, error) {
	return logging.New(up, logging.Config{Sinks: []logging.Sink{logging.NewRing(0)}})
}

func limit(up core.Resource) (core.Resource, error) {
	return budget.New(up, budget.Config{Limit: 1 << 40, OnTag: metrics.NewTagSeries().Used})
}

func guardOff(up core.Resource) (core.Resource, error) {
	return debugguard.New(up, debugguard.Config{Mode: debugguard.Off})
}

func guardLedger(up core.Resource) (core.Resource, error) {
	return debugguard.New(up, debugguard.Config{Mode: debugguard.Ledger})
}

func counted(up core.Resource) (core.Resource, error) {
	return telemetry.NewResource(up, telemetry.Config{})
}

// unsampled are the ways in which a service runs of which nothing is sampled, and the context of its
// operations.
var unsampled = []struct {
	name     string
	provider trace.TracerProvider
	ctx      context.Context
}{
	{"no provider", nil, context.Background()},
	{"unsampled parent", provider(sdktrace.AlwaysSample()), unsampledParent()},
	{"no parent, never sampled", provider(sdktrace.NeverSample()), context.Background()},
	{"no parent, seldom sampled", provider(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(1e-6))), context.Background()},
}

// unsampledParent is the context of a request whose trace is not sampled.
func unsampledParent() context.Context {
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	return trace.ContextWithSpanContext(context.Background(), parent)
}

// ways are how a benchmark opens what it measures: the bare backend, and services by the mode of
// their guard.
var ways = []struct {
	name string
	open func(tb testing.TB, drv driver.Driver, backend fencepost.Backend) *stack
}{
	{"bare", func(tb testing.TB, drv driver.Driver, backend fencepost.Backend) *stack {
		return openOn(tb, drv, constructors[backend])
	}},
	{"service,guard=off", serviceWith(fencepost.GuardOff)},
	{"service,guard=ledger", serviceWith(fencepost.GuardLedger)},
	{"service", serviceWith("")},
}

func serviceWith(mode fencepost.GuardMode) func(testing.TB, driver.Driver, fencepost.Backend) *stack {
	return func(tb testing.TB, drv driver.Driver, backend fencepost.Backend) *stack {
		return service(tb, drv, over(backend), guarded(mode))
	}
}

// open is the driver's pool over a driver that does nothing, with layers.
func open(tb testing.TB, layers ...core.Layer) *stack {
	tb.Helper()
	return openOver(tb, &drivertest.Null{}, layers...)
}

func openOver(tb testing.TB, drv driver.Driver, layers ...core.Layer) *stack {
	tb.Helper()
	return openOn(tb, drv, async, layers...)
}

// backend is a resource at the bottom of a stack.
type backend interface {
	core.Resource
	Close(context.Context) error
}

// constructor makes a backend.
type constructor func(driver.Driver, *cuda.StreamPool) (backend, error)

func async(drv driver.Driver, streams *cuda.StreamPool) (backend, error) {
	return cuda.NewAsyncResource(drv, streams, cuda.AsyncConfig{})
}

func pool(drv driver.Driver, streams *cuda.StreamPool) (backend, error) {
	return cuda.NewPoolResource(drv, streams, cuda.PoolConfig{})
}

var constructors = map[fencepost.Backend]constructor{fencepost.Async: async, fencepost.Pool: pool}

func openOn(tb testing.TB, drv driver.Driver, newBackend constructor, layers ...core.Layer) *stack {
	tb.Helper()
	streams, err := cuda.NewStreamPool(drv, cuda.StreamPoolConfig{Max: 2048})
	if err != nil {
		tb.Fatal(err)
	}
	bottom, err := newBackend(drv, streams)
	if err != nil {
		tb.Fatal(err)
	}
	top, err := core.Chain(bottom, layers...)
	if err != nil {
		tb.Fatal(err)
	}
	rt, err := core.NewRuntime(top, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = bottom.Close(context.Background())
		_ = streams.Close(context.Background())
	})
	return &stack{streams: streams, runtime: rt, ctx: context.Background()}
}

func (s *stack) lease(tb testing.TB) *cuda.Lease {
	tb.Helper()
	l, err := s.streams.Acquire(context.Background(), "bench")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Release() })
	return l
}

// pair is one allocation and its free.
func (s *stack) pair(ctx context.Context, stream core.StreamID) error {
	return s.pairOf(ctx, stream, 4096)
}

func (s *stack) pairOf(ctx context.Context, stream core.StreamID, bytes uint64) error {
	b, err := s.runtime.Allocate(ctx, core.Request{Bytes: bytes, Stream: stream, Tag: "bench"})
	if err != nil {
		return err
	}
	_, err = s.runtime.Deallocate(ctx, b.ID)
	return err
}
