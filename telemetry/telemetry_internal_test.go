package telemetry

import (
	"context"
	"strconv"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// ownContext is a context type of a layer's own.
type ownContext struct{ context.Context }

func sampledContext(flags trace.TraceFlags) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags})
}

// wrappings are what a layer may do to the context of an operation.
func wrappings(t *testing.T) map[string]func(context.Context) context.Context {
	type key struct{}
	ended := func(ctx context.Context, cancel context.CancelFunc) context.Context {
		t.Cleanup(cancel)
		return ctx
	}
	return map[string]func(context.Context) context.Context{
		"direct":        func(ctx context.Context) context.Context { return ctx },
		"WithValue":     func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, 1) },
		"WithTimeout":   func(ctx context.Context) context.Context { return ended(context.WithTimeout(ctx, time.Hour)) },
		"WithCancel":    func(ctx context.Context) context.Context { return ended(context.WithCancel(ctx)) },
		"WithoutCancel": context.WithoutCancel,
		"own type":      func(ctx context.Context) context.Context { return ownContext{ctx} },
		"own span": func(ctx context.Context) context.Context {
			return trace.ContextWithSpanContext(ctx, sampledContext(trace.FlagsSampled))
		},
		"core.WithSpan": func(ctx context.Context) context.Context {
			return core.WithSpan(ctx, core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{9}})
		},
		"several": func(ctx context.Context) context.Context {
			return ownContext{context.WithoutCancel(ended(context.WithTimeout(context.WithValue(ctx, key{}, 1), time.Hour)))}
		},
	}
}

func TestAnOperationIsFoundInWhateverWrapsItsContext(t *testing.T) {
	request := trace.ContextWithSpanContext(t.Context(), sampledContext(trace.FlagsSampled))
	operation := under(request, trace.SpanFromContext(request))
	untraced := carry(operation, core.SpanContext{SpanRef: core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}, Sampled: true})
	for name, wrap := range wrappings(t) {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				what string
				ctx  context.Context
				want bool
			}{
				{"a traced operation", operation, true},
				{"an untraced one within a traced one", untraced, false},
				{"no operation", request, false},
			} {
				wrapped := wrap(c.ctx)
				if got := inTracedOperation(wrapped); got != c.want {
					t.Errorf("%s: %v, want %v", c.what, got, c.want)
				}
				if n := testing.AllocsPerRun(100, func() { inTracedOperation(c.ctx) }); n != 0 {
					t.Errorf("%s: %v allocations", c.what, n)
				}
			}
		})
	}
	if inTracedOperation(trace.ContextWithSpanContext(operation, sampledContext(0))) {
		t.Error("a span that is not sampled does not end the trace")
	}
}

// refusing refuses every allocation with an error of its own, as a budget does.
type refusing struct{ *coretest.Fake }

func (refusing) Allocate(_ context.Context, req core.Request) (core.Block, error) {
	return core.Block{}, &core.OutOfBudgetError{Requested: req.Bytes, Limit: 1 << 20, Tag: req.Tag,
		Holders: []core.Holder{{Tag: "join", State: core.Live, Bytes: 1 << 19, Blocks: 3}, {Tag: "sort", State: core.Retired, Bytes: 1 << 18, Blocks: 1}}}
}

// BenchmarkRefused is a refused allocation in a request that is not sampled: "off"
// makes no span of it, "limited" none because the second's are used up.
func BenchmarkRefused(b *testing.B) {
	for name, c := range map[string]struct {
		level   Level
		limited bool
	}{"off": {level: LevelOff}, "limited": {limited: true}, "span": {}} {
		b.Run(name, func(b *testing.B) {
			provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0))), sdktrace.WithSpanProcessor(drop{}))
			r, err := NewResource(refusing{coretest.NewFake(0)}, Config{TracerProvider: provider, Level: c.level})
			if err != nil {
				b.Fatal(err)
			}
			ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Allocate(ctx, core.Request{Bytes: 1 << 19, Stream: 1, Tag: "sort"}); err == nil {
					b.Fatal("not refused")
				}
				if !c.limited {
					r.tracing.events.made = 0
				}
			}
		})
	}
}

type drop struct{ sdktrace.SpanProcessor }

func (drop) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (drop) OnEnd(sdktrace.ReadOnlySpan)                     {}

// A goroutine that waited for the lock brings the second before. That is no new one; but the
// time of day may be set back, which is.
func TestTheLimitOfASecondHoldsForWhoComesLate(t *testing.T) {
	var s eventSpans
	now := time.Unix(1000, 0)
	admitted := 0
	for i := range 3 * MaxEventSpans {
		if s.admit(now.Add(-time.Duration(i%2) * time.Second)) {
			admitted++
		}
	}
	if admitted != MaxEventSpans {
		t.Errorf("%d are admitted in a second", admitted)
	}
	if !s.admit(now.Add(time.Second)) || !s.admit(now.Add(-time.Hour)) {
		t.Error("another second admits nothing")
	}
}

// The name of a target that is known is not made again, nor that of the others.
func TestANameIsMadeOnce(t *testing.T) {
	launches := targetsOf(SpanLaunch, SpanPrepare)
	for i := range 2 * metrics.MaxTags {
		launches.name(SpanPrepare, strconv.Itoa(i))
	}
	for _, target := range []string{"", "0", "63", "64", "127", "128"} {
		if n := testing.AllocsPerRun(100, func() { launches.name(SpanLaunch, target) }); n != 0 {
			t.Errorf("the name of a launch of %q costs %v allocations", target, n)
		}
	}
}
