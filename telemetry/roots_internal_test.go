package telemetry

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// An SDK whose samplers decide by another rule is found out by its first answer, and is asked from then on.
func TestASamplerThatContradictsIsAsked(t *testing.T) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	r := must.Get(NewResource(coretest.NewFake(0), Config{TracerProvider: provider}))(t)
	r.tracing.roots.below = 1 << 63
	must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64}))(t)
	if _, as := r.tracing.roots.draw(t.Context()); as != asRoot || r.tracing.roots.known.Load() {
		t.Errorf("the next operation is %v", as)
	}
}

// The ids that a launch has brought along stay its own when the context serves the next one.
func TestOperationsOfOneContextHaveIDsOfTheirOwn(t *testing.T) {
	r := rootsOf(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())))
	seen := map[core.SpanContext]bool{}
	for range 1000 {
		d := r.decline(t.Context())
		if sc := d.ref(); seen[sc] || sc.IsZero() || sc.Sampled {
			t.Fatalf("%v is that of another, or none", sc)
		}
		seen[d.ref()] = true
		d.done()
	}
}
