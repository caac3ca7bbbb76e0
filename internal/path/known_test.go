package path_test

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

type contextKey struct{}

// request is the context of another request.
func request(t *testing.T) context.Context {
	return context.WithValue(t.Context(), contextKey{}, new(int))
}

// knows reports whether the layer served an allocation and a free because it knew the context.
func knows(t *testing.T, p *path.Path, ctx context.Context, stream core.StreamID) bool {
	t.Helper()
	var block core.Block
	allocated, err := p.AllocateKnown(ctx, &core.Request{Bytes: 100, Stream: stream}, &block)
	must.Do(t, err)
	freed, err := p.DeallocateKnown(ctx, &core.BlockID{Generation: 3, AllocStream: stream}, &block)
	must.Do(t, err)
	if allocated && !freed {
		t.Fatal("the lane forgets a context of its own accord")
	}
	return allocated
}

func unsampled(t *testing.T, p *path.Path, ctx context.Context, stream core.StreamID) {
	t.Helper()
	var block core.Block
	must.Do(t, p.AllocateUnsampled(ctx, &core.Request{Bytes: 100, Stream: stream}, &block),
		p.DeallocateUnsampled(ctx, &core.BlockID{Generation: 3, AllocStream: stream}, &block))
}

func TestALaneKnowsAContextOnlyWhileItMay(t *testing.T) {
	b := newBackend()
	one, other := request(t), request(t)
	want := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: known: %v", what, got)
		}
	}
	unsampled(t, b.path, one, lease)
	want("no reaper comes", knows(t, b.path, one, lease), false)
	b.lane.Forget(true)
	want("nothing was found yet", knows(t, b.path, one, lease), false)
	unsampled(t, b.path, one, lease)
	want("found", knows(t, b.path, one, lease), true)
	want("another context", knows(t, b.path, other, lease), false)
	want("no context", knows(t, b.path, nil, lease), false)
	want("another layer", knows(t, path.Of(put(b, "above", new([]string))), one, lease), false)
	b.lane.Forget(true)
	want("the reaper came", knows(t, b.path, one, lease), false)
	unsampled(t, b.path, one, lease)
	want("found again", knows(t, b.path, one, lease), true)
	b.lane.Forget(false)
	want("the reaper came last", knows(t, b.path, one, lease), false)
	unsampled(t, b.path, one, lease)
	want("no reaper comes any more", knows(t, b.path, one, lease), false)

	unsampled(t, b.path, one, lease+1)
	want("a lane that streams share", knows(t, b.path, one, lease+1), false)
	b.lane.Forget(true)
	unsampled(t, b.path, core.WithSpan(one, core.SpanRef{SpanID: [8]byte{1}}), lease)
	want("a context with a span", knows(t, b.path, one, lease), false)
}

// To ask a lane takes its lock: where each operation comes with another context that is not worth it.
func TestALaneThatMissesOftenIsAskedNoMoreUntilTheReaperComes(t *testing.T) {
	b := newBackend()
	b.lane.Forget(true)
	kept := request(t)
	for range 1000 {
		unsampled(t, b.path, kept, lease)
		if knows(t, b.path, request(t), lease) {
			t.Fatal("the lane knows a context that is new")
		}
	}
	if knows(t, b.path, kept, lease) {
		t.Error("the lane is asked by all")
	}
	b.lane.Forget(true)
	unsampled(t, b.path, kept, lease)
	for range 1000 {
		if !knows(t, b.path, kept, lease) {
			t.Fatal("the lane does not know its newest context")
		}
		knows(t, b.path, request(t), lease)
	}
}
