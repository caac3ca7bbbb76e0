package telemetry_test

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

// nothing is the least a tracking backend can do, so that what is measured is
// the layer above it.
type nothing struct {
	core.Unsupported
	block core.Block
}

func newNothing() *nothing {
	id := core.BlockID{Ptr: 0x1000, Generation: core.NextGeneration(), AllocStream: 1}
	return &nothing{block: core.Block{ID: id, Requested: 64, Bytes: 64, Tag: "bench", State: core.Live}}
}

func (n *nothing) String() string          { return "nothing" }
func (n *nothing) Ordinal() int            { return 0 }
func (n *nothing) Features() core.Features { return core.UseTracking }
func (n *nothing) Allocate(context.Context, core.Request) (core.Block, error) {
	return n.block, nil
}
func (n *nothing) Deallocate(context.Context, core.BlockID) (core.Block, error) {
	return n.block, nil
}

func (n *nothing) PrepareUse(_ context.Context, r core.UseRequest) (core.Ticket, error) {
	in, err := core.OpenIntent(n, &r)
	if err != nil {
		return core.Ticket{}, err
	}
	return in.Ticket(n), nil
}

func (n *nothing) FinishUse(_ context.Context, t core.Ticket) error { return n.end(t, "FinishUse") }
func (n *nothing) AbortUse(_ context.Context, t core.Ticket) error  { return n.end(t, "AbortUse") }
func (n *nothing) end(t core.Ticket, op string) error {
	in, err := t.End(n, op)
	if err == nil {
		in.Recycle()
	}
	return err
}

func (n *nothing) ReapPending(context.Context) error       { return nil }
func (n *nothing) Drain(context.Context) error             { return nil }
func (n *nothing) State(core.BlockID) core.BlockState      { return core.Live }
func (n *nothing) Stats() core.Stats                       { return core.Stats{} }
func (n *nothing) FreedOn(core.StreamID) core.FreeCounters { return core.FreeCounters{} }
func (n *nothing) Subscribe(core.Listener)                 {}
func (n *nothing) Unwrap() core.Resource                   { return nil }

// setting is a way to run the layer; its resource and a caller's context.
type setting struct {
	name string
	open func(testing.TB) (core.Resource, context.Context)
}

func observed(t testing.TB, cfg telemetry.Config) core.Resource {
	return must.Get(telemetry.NewResource(newNothing(), cfg))(t)
}

func observedAs(ctx context.Context, name string, cfg telemetry.Config) setting {
	return setting{name, func(t testing.TB) (core.Resource, context.Context) { return observed(t, cfg), ctx }}
}

// discard takes spans and forgets them.
type discard struct{ sdktrace.SpanProcessor }

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}

func provider(sampler sdktrace.Sampler) trace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(discard{}))
}

// free are the settings that must not allocate.
var free = []setting{
	{"bare", func(testing.TB) (core.Resource, context.Context) { return newNothing(), context.Background() }},
	observedAs(context.Background(), "observed-no-tracing", telemetry.Config{}),
	observedAs(unsampled(context.Background()), "unsampled", telemetry.Config{TracerProvider: provider(sdktrace.AlwaysSample())}),
	observedAs(context.Background(), "root-never", telemetry.Config{TracerProvider: provider(sdktrace.NeverSample())}),
	observedAs(context.Background(), "root-seldom", telemetry.Config{TracerProvider: provider(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(1e-6)))}),
	observedAs(context.Background(), "root-ratio-0", telemetry.Config{TracerProvider: provider(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0)))}),
	observedAs(context.Background(), "no-roots", telemetry.Config{TracerProvider: provider(sdktrace.AlwaysSample()), NoRoots: true}),
}

// traces are the settings that ask the SDK for spans.
var traces = []setting{
	observedAs(context.Background(), "root-declined", telemetry.Config{TracerProvider: provider(ownSampler{sdktrace.NeverSample()})}),
	observedAs(context.Background(), "sampled", telemetry.Config{TracerProvider: provider(sdktrace.AlwaysSample())}),
	{"sampled-to-the-pipe", func(t testing.TB) (core.Resource, context.Context) {
		piped := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spanpipe.New(forget{}, spanpipe.Config{})))
		t.Cleanup(func() { must.Do(t, piped.Shutdown(context.Background())) })
		return observed(t, telemetry.Config{TracerProvider: piped}), context.Background()
	}},
	{"sampled-with-a-layer", func(t testing.TB) (core.Resource, context.Context) {
		p := provider(sdktrace.AlwaysSample())
		probe := must.Get(telemetry.NewProbe(newNothing(), telemetry.LayerDriver, p))(t)
		return must.Get(telemetry.NewResource(probe, telemetry.Config{TracerProvider: p}))(t), context.Background()
	}},
}

// ownSampler is of a type that is not the SDK's.
type ownSampler struct{ sdktrace.Sampler }

// forget is an exporter that takes everything at once.
type forget struct{}

func (forget) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (forget) Shutdown(context.Context) error                             { return nil }

// launchPair is the prepare and finish of one launch.
func launchPair(ctx context.Context, r core.Resource, req core.UseRequest) error {
	ticket, err := r.PrepareUse(ctx, req)
	if err != nil {
		return err
	}
	return r.FinishUse(ctx, ticket)
}

func allocs(t *testing.T, operation func() error) float64 {
	t.Helper()
	return testing.AllocsPerRun(200, func() {
		if err := operation(); err != nil {
			t.Fatal(err)
		}
	})
}

// What the SDK takes to ask a sampler that declines is documented in the
// package comment; this notices when that changes.
func TestDeclinedRootsCostWhatIsDocumented(t *testing.T) {
	r, ctx := traces[0].open(t)
	n := allocs(t, func() error { _, err := r.Allocate(ctx, core.Request{Bytes: 64}); return err })
	if n > 2 {
		t.Errorf("a declined root allocates %v times, documented are 2", n)
	}
}

// BenchmarkPair is an allocation and its free.
func BenchmarkPair(b *testing.B) {
	for _, s := range append(free, traces...) {
		b.Run(s.name, func(b *testing.B) {
			r, ctx := s.open(b)
			b.ReportAllocs()
			for b.Loop() {
				block, err := r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1})
				if err == nil {
					_, err = r.Deallocate(ctx, block.ID)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLaunch is the prepare and finish of a launch of two blocks.
func BenchmarkLaunch(b *testing.B) {
	for _, s := range append(free, traces...) {
		b.Run(s.name, func(b *testing.B) {
			r, ctx := s.open(b)
			one, two := newNothing().block, newNothing().block
			req := core.UseRequest{Stream: 1, Launch: "k", Uses: uses(core.Write, one, two)}
			b.ReportAllocs()
			for b.Loop() {
				if err := launchPair(ctx, r, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPairParallel is BenchmarkPair from all processors: the counters
// must not make them wait for each other.
func BenchmarkPairParallel(b *testing.B) {
	for _, s := range free[:3] {
		b.Run(s.name, func(b *testing.B) {
			r, ctx := s.open(b)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					block, _ := r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1})
					_, _ = r.Deallocate(ctx, block.ID)
				}
			})
		})
	}
}
