package telemetry_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// overPool is the layer over the runtime's own pool on a simulated device, with a stream of that.
type overPool struct {
	*telemetry.Resource
	pool     *cuda.PoolResource
	recorder *tracetest.SpanRecorder
	stream   core.StreamID
}

func newOverPool(t *testing.T, cfg telemetry.Config, reap time.Duration) *overPool {
	t.Helper()
	device := must.Get(sim.Open(sim.Config{Bytes: 64 << 20}))(t)
	streams := must.Get(cuda.NewStreamPool(device, cuda.StreamPoolConfig{}))(t)
	pool := must.Get(cuda.NewPoolResource(device, streams, cuda.PoolConfig{ReapInterval: reap}))(t)
	o := &overPool{pool: pool, recorder: tracetest.NewSpanRecorder()}
	cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.recorder))
	o.Resource = must.Get(telemetry.NewResource(pool, cfg))(t)
	o.stream = must.Get(streams.Acquire(t.Context(), "test"))(t).ID()
	t.Cleanup(func() { _ = pool.Close(context.Background()) })
	return o
}

func (o *overPool) pair(ctx context.Context, t *testing.T) {
	t.Helper()
	b := must.Get(o.Allocate(ctx, core.Request{Bytes: 4096, Stream: o.stream}))(t)
	must.Get(o.Deallocate(ctx, b.ID))(t)
}

// asked counts how often the values of a context are looked up.
type asked struct {
	context.Context
	n *atomic.Int64
}

func (a asked) Value(key any) any {
	a.n.Add(1)
	return a.Context.Value(key)
}

// within20s repeats what becomes true in the end.
func within20s(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

type valueKey struct{}

func TestTheSameUnsampledContextIsLookedAtOnce(t *testing.T) {
	o := newOverPool(t, telemetry.Config{}, 0)
	for name, wrap := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"value": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithValue(ctx, valueKey{}, 1), func() {}
		},
		"cancel": context.WithCancel,
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := new(atomic.Int64)
			ctx, cancel := wrap(asked{unsampled(t.Context()), n})
			defer cancel()
			within20s(t, "each operation looks its context up", func() bool {
				o.pair(ctx, t)
				before := n.Load()
				o.pair(ctx, t)
				return n.Load() == before
			})
		})
	}
	if n := len(o.recorder.Started()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

// A stream that is used no more keeps nothing that a request has hung on its context, and a closed
// pool's neither.
func TestAStreamKeepsNoContextAlive(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *overPool){
		"the reaper comes": func(*testing.T, *overPool) {},
		"the pool is closed": func(t *testing.T, o *overPool) {
			must.Do(t, o.pool.Close(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOverPool(t, telemetry.Config{}, 50*time.Millisecond)
			n := new(atomic.Int64)
			parent := asked{unsampled(t.Context()), n}
			payload := new([1 << 10]byte)
			kept := weak.Make(payload)
			ctx := context.WithValue(context.Context(parent), valueKey{}, payload)
			within20s(t, "each operation looks its context up", func() bool {
				o.pair(ctx, t)
				before := n.Load()
				o.pair(ctx, t)
				return n.Load() == before
			})
			end(t, o)
			ctx, payload = nil, nil //nolint:wastedassign,ineffassign // nothing else keeps it
			within20s(t, "the stream keeps the context of its last operation", func() bool {
				runtime.GC()
				return kept.Value() == nil
			})
			runtime.KeepAlive(o)
		})
	}
}

// changing is a context that serves one request after the other, as those of some web frameworks
// do.
type changing struct{ context.Context }

// sliced is a context that must not be compared.
type sliced struct {
	context.Context
	_ []int
}

func TestAContextIsBelievedOnlyAsLongAsItIsTrue(t *testing.T) {
	o := newOverPool(t, telemetry.Config{}, 0)
	quiet := unsampled(t.Context())
	sampled, span := sdktrace.NewTracerProvider().Tracer("request").Start(t.Context(), "request")
	defer span.End()
	spans := func(ctx context.Context) int {
		before := len(o.recorder.Ended())
		o.pair(ctx, t)
		return len(o.recorder.Ended()) - before
	}
	known := func() {
		t.Helper()
		n := new(atomic.Int64)
		ctx := context.WithValue(context.Context(asked{quiet, n}), valueKey{}, 1)
		within20s(t, "each operation looks its context up", func() bool {
			before := n.Load()
			o.pair(ctx, t)
			return n.Load() == before
		})
	}
	reused := &changing{quiet}
	for i := range 50 {
		if i%10 == 0 {
			known()
		}
		for name, want := range map[string]struct {
			context.Context
			spans int
		}{
			"unsampled": {quiet, 0}, "sampled": {sampled, 2}, "a root": {t.Context(), 2},
			"uncomparable": {sliced{quiet, nil}, 0}, "uncomparable and sampled": {sliced{sampled, nil}, 2},
			"below a sampled one": {context.WithValue(sampled, valueKey{}, 1), 2},
			"unsampled below":     {unsampled(sampled), 0},
		} {
			if got := spans(want.Context); got != want.spans {
				t.Fatalf("%s: %d spans, want %d", name, got, want.spans)
			}
		}
		for _, now := range []context.Context{quiet, sampled} {
			reused.Context = now //nolint:fatcontext // a reused context is what the test is about
			want := 0
			if now == sampled {
				want = 2
			}
			if got := spans(reused); got != want {
				t.Fatalf("a context that was reused: %d spans, want %d", got, want)
			}
		}
	}
}

// Two layers over one pool look at contexts differently: what one has found says nothing to the
// other.
func TestEachLayerLooksAtContextsItself(t *testing.T) {
	o := newOverPool(t, telemetry.Config{}, 0)
	silent := must.Get(telemetry.NewResource(o.pool,
		telemetry.Config{TracerProvider: sdktrace.NewTracerProvider(), Level: telemetry.LevelOff}))(t)
	n := new(atomic.Int64)
	ctx := context.WithValue(context.Context(asked{t.Context(), n}), valueKey{}, 1)
	within20s(t, "each operation looks its context up", func() bool {
		b := must.Get(silent.Allocate(ctx, core.Request{Bytes: 4096, Stream: o.stream}))(t)
		before := n.Load()
		must.Get(silent.Deallocate(ctx, b.ID))(t)
		if n.Load() != before {
			return false
		}
		o.pair(ctx, t)
		return true
	})
	if n := len(o.recorder.Ended()); n != 2 {
		t.Errorf("%d spans of an allocation and a free that begin traces", n)
	}
}

// Goroutines share a stream, some in sampled traces, while the reaper comes often.
func TestHammerOfKnownContexts(t *testing.T) {
	const goroutines, rounds, pairs = 6, 40, 5
	o := newOverPool(t, telemetry.Config{NoRoots: true}, 100*time.Microsecond)
	provider := sdktrace.NewTracerProvider()
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			for range rounds {
				ctx, span := provider.Tracer("request").Start(t.Context(), "request")
				if i%2 == 0 {
					ctx = unsampled(ctx)
				}
				for range pairs {
					b, err := o.Allocate(ctx, core.Request{Bytes: 4096, Stream: o.stream})
					if expect.Success(t, err); err == nil {
						_, err = o.Deallocate(ctx, b.ID)
						expect.Success(t, err)
					}
				}
				span.End()
			}
		})
	}
	all.Wait()
	ended := o.recorder.Ended()
	isAlien := func(s sdktrace.ReadOnlySpan) bool { return !s.Parent().IsSampled() }
	if want := goroutines / 2 * rounds * pairs * 2; len(ended) != want || slices.ContainsFunc(ended, isAlien) {
		t.Errorf("%d spans, want %d, all in sampled traces", len(ended), want)
	}
	if s := o.Stats(); s.Live.Blocks != 0 {
		t.Errorf("%d blocks are left", s.Live.Blocks)
	}
}
