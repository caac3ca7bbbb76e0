package core_test

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

type plainSink struct{ events []core.Event }

func (s *plainSink) Emit(e core.Event) { s.events = append(s.events, e) }

type contextSink struct {
	plainSink
	contexts []context.Context
}

func (s *contextSink) EmitIn(ctx context.Context, e core.Event) {
	s.contexts = append(s.contexts, ctx)
	s.Emit(e)
}

func TestASinkThatWantsTheContextGetsIt(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "the caller's")
	plain, with := &plainSink{}, &contextSink{}
	for _, sink := range []core.EventSink{plain, with} {
		core.EmitIn(ctx, sink, core.Event{Op: core.OpRefusal, Tag: "sort"})
	}
	if len(plain.events) != 1 || plain.events[0].Tag != "sort" || len(with.events) != 1 || len(with.contexts) != 1 || with.contexts[0].Value(key{}) != "the caller's" {
		t.Errorf("%+v and %+v", plain, with)
	}
}

func TestAnEventSaysHowMuchOfItsTraceWasExported(t *testing.T) {
	span := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	for want, e := range map[string]core.Event{"": {Alone: true}, core.TraceFull: {Span: span}, core.TraceEvent: {Span: span, Alone: true}} {
		if got := e.Trace(); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}
