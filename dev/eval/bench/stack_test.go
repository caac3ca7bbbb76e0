package bench

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

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

// stack is a runtime over a driver that does nothing, so that what is
// measured is the runtime's own cost.
type stack struct {
	streams *cuda.StreamPool
	runtime *core.Runtime
	// ctx is that of what is measured.
	ctx context.Context
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

// traced is counted with a provider of spans.
func traced(sampler sdktrace.Sampler) core.Layer {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler))
	return func(up core.Resource) (core.Resource, error) {
		return telemetry.NewResource(up, telemetry.Config{TracerProvider: provider})
	}
}

// unsampled are the ways in which a service runs of which nothing is sampled, and the context of its
// operations.
var unsampled = []struct {
	name  string
	layer core.Layer
	ctx   context.Context
}{
	{"no provider", counted, context.Background()},
	{"unsampled parent", traced(sdktrace.AlwaysSample()), unsampledParent()},
	{"no parent, never sampled", traced(sdktrace.NeverSample()), context.Background()},
	{"no parent, seldom sampled", traced(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(1e-6))), context.Background()},
}

// unsampledParent is the context of a request whose trace is not sampled.
func unsampledParent() context.Context {
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	return trace.ContextWithSpanContext(context.Background(), parent)
}

// whole is the stack of the claims: logging to the ring, budget, guard off,
// metrics on.
var whole = []core.Layer{ring, limit, guardOff, counted}

// wholeLedger is that stack with the guard's ledger on.
var wholeLedger = []core.Layer{ring, limit, guardLedger, counted}

func open(tb testing.TB, layers ...core.Layer) *stack {
	tb.Helper()
	return openOver(tb, &drivertest.Null{}, layers...)
}

func openOver(tb testing.TB, drv driver.Driver, layers ...core.Layer) *stack {
	tb.Helper()
	return openWith(tb, drv, func(*cuda.StreamPool) []core.Layer { return layers })
}

// openWith is for layers that need the streams.
func openWith(tb testing.TB, drv driver.Driver, layersOf func(*cuda.StreamPool) []core.Layer) *stack {
	tb.Helper()
	return openOn(tb, drv, async, layersOf)
}

// openPool is open over the runtime's own pool.
func openPool(tb testing.TB, layers ...core.Layer) *stack {
	tb.Helper()
	return openOn(tb, &drivertest.Null{}, pool, func(*cuda.StreamPool) []core.Layer { return layers })
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

func openOn(tb testing.TB, drv driver.Driver, newBackend constructor, layersOf func(*cuda.StreamPool) []core.Layer, options ...func(*cuda.StreamPoolConfig)) *stack {
	tb.Helper()
	cfg := cuda.StreamPoolConfig{Max: 2048}
	for _, set := range options {
		set(&cfg)
	}
	streams, err := cuda.NewStreamPool(drv, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	bottom, err := newBackend(drv, streams)
	if err != nil {
		tb.Fatal(err)
	}
	top, err := core.Chain(bottom, layersOf(streams)...)
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
