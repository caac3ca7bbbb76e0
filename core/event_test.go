package core_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/names"
)

func TestAnEventSaysHowMuchOfItsTraceWasExported(t *testing.T) {
	span := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	for want, e := range map[string]core.Event{"": {Alone: true}, names.TraceFull: {Span: span}, names.TraceEvent: {Span: span, Alone: true}} {
		if got := e.Span.Extent(e.Alone); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}
