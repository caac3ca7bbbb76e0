package path_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/trace"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// onTop is one more layer over an opened runtime. It counts the operations that all layers have
// served under the lock of the lane, with nothing left to do.
type onTop struct {
	path.Simple
	below  *path.Path
	atOnce int
}

func (l *onTop) Allocate(o *path.Op) bool { return l.count(o, l.below.Layer.Allocate(o)) }

func (l *onTop) Deallocate(o *path.Op) bool { return l.count(o, l.below.Layer.Deallocate(o)) }

func (l *onTop) count(o *path.Op, served bool) bool {
	if served && o.AtOnce && !o.Unsettled() {
		l.atOnce++
	}
	return served
}

// A service gets the fast way that the benchmarks measure: Open adds nothing that takes an ordinary
// operation off it.
func TestAnOpenedRuntimeServesOrdinaryOperationsAtOnce(t *testing.T) {
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	unsampled := trace.ContextWithSpanContext(t.Context(), parent)
	spans := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	for _, guard := range []fencepost.GuardMode{"", "off", "ledger"} {
		for name, cfg := range map[string]fencepost.Config{
			"defaults":    {},
			"a provider":  {TracerProvider: spans},
			"a budget":    {TracerProvider: spans, Budget: 1 << 30},
			"incidents":   {TracerProvider: spans, Incidents: t.TempDir()},
			"one call on": {OnFinding: func(core.Finding) {}, OnHealth: func(core.Health) {}},
		} {
			t.Run(fmt.Sprintf("%s/guard=%s", name, guard), func(t *testing.T) {
				cfg.Driver, cfg.Guard, cfg.Resource = &drivertest.Null{}, guard, fencepost.Pool
				rt := must.Get(fencepost.Open(t.Context(), cfg))(t)
				defer func() { must.Get(rt.Close(context.WithoutCancel(t.Context())))(t) }()
				lease := must.Get(rt.Streams().Acquire(t.Context(), "test"))(t)
				defer func() { must.Do(t, lease.Release()) }()
				below := path.Of(rt.Core().Resource())
				layer := &onTop{below: below}
				top := below.Extend(nil, layer, nil)
				const pairs = 1000
				for range pairs {
					var b core.Block
					req := core.Request{Bytes: 4096, Stream: lease.ID(), Tag: "test"}
					must.Do(t, top.Allocate(unsampled, nil, &req, &b))
					must.Do(t, top.Deallocate(unsampled, nil, &b.ID, &b))
				}
				// The first allocation maps memory, and the guard takes a sample.
				if layer.atOnce < 2*pairs*9/10 {
					t.Errorf("%d of %d operations were served at once", layer.atOnce, 2*pairs)
				}
			})
		}
	}
}
