package telemetry

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// ownContext is a context type of a layer's own.
type ownContext struct{ context.Context }

func sampledContext(flags trace.TraceFlags) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags})
}

// wrappings are what a layer may do to the context of an operation.
func wrappings(t testing.TB) map[string]func(context.Context) context.Context {
	type key struct{}
	ended := func(ctx context.Context, cancel context.CancelFunc) context.Context {
		t.Cleanup(cancel)
		return ctx
	}
	return map[string]func(context.Context) context.Context{
		"direct":      func(ctx context.Context) context.Context { return ctx },
		"WithValue":   func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, 1) },
		"WithTimeout": func(ctx context.Context) context.Context { return ended(context.WithTimeout(ctx, time.Hour)) },
		"WithDeadline": func(ctx context.Context) context.Context {
			return ended(context.WithDeadline(ctx, time.Now().Add(time.Hour)))
		},
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
	untraced := carry(operation, sampledContext(trace.FlagsSampled))
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

// BenchmarkInTracedOperation is what a probe asks of each call: "bare" is the look
// at the type alone.
func BenchmarkInTracedOperation(b *testing.B) {
	request := trace.ContextWithSpanContext(context.Background(), sampledContext(trace.FlagsSampled))
	ctx := under(request, trace.SpanFromContext(request))
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := ctx.(*operation); !ok {
				b.Fatal("not found")
			}
		}
	})
	for name, wrap := range wrappings(b) {
		wrapped := wrap(ctx)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !inTracedOperation(wrapped) {
					b.Fatal("not found")
				}
			}
		})
	}
}
