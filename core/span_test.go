package core_test

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestAContextCarriesASpanForTheNextLayerOnly(t *testing.T) {
	type key struct{}
	base := context.WithValue(t.Context(), key{}, "kept")
	span := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	ctx := core.WithSpan(base, span)
	if got := core.SpanOf(ctx); got != span || ctx.Value(key{}) != "kept" {
		t.Errorf("span %v, value %v", got, ctx.Value(key{}))
	}
	wrapped, cancel := context.WithCancel(ctx)
	defer cancel()
	for name, ctx := range map[string]context.Context{"nil": nil, "plain": base, "wrapped": wrapped} {
		if got := core.SpanOf(ctx); !got.IsZero() {
			t.Errorf("a %s context carries %v", name, got)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = core.SpanOf(ctx), core.SpanOf(base) }); n != 0 {
		t.Errorf("asking allocates %v times", n)
	}
}
