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
func knows(ctx context.Context, t *testing.T, p *path.Path, stream core.StreamID) bool {
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

func unsampled(ctx context.Context, t *testing.T, p *path.Path, stream core.StreamID) {
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
	unsampled(one, t, b.path, lease)
	want("no reaper comes", knows(one, t, b.path, lease), false)
	b.lane.Forget(true)
	want("nothing was found yet", knows(one, t, b.path, lease), false)
	unsampled(one, t, b.path, lease)
	want("found", knows(one, t, b.path, lease), true)
	want("another context", knows(other, t, b.path, lease), false)
	want("no context", knows(nil, t, b.path, lease), false) //nolint:staticcheck // a nil context must do no harm
	want("another layer", knows(one, t, path.Of(put(b, "above", new([]string))), lease), false)
	b.lane.Forget(true)
	want("the reaper came", knows(one, t, b.path, lease), false)
	unsampled(one, t, b.path, lease)
	want("found again", knows(one, t, b.path, lease), true)
	b.lane.Forget(false)
	want("the reaper came last", knows(one, t, b.path, lease), false)
	unsampled(one, t, b.path, lease)
	want("no reaper comes any more", knows(one, t, b.path, lease), false)

	unsampled(one, t, b.path, lease+1)
	want("a lane that streams share", knows(one, t, b.path, lease+1), false)
	b.lane.Forget(true)
	unsampled(core.WithSpan(one, core.SpanRef{SpanID: [8]byte{1}}), t, b.path, lease)
	want("a context with a span", knows(one, t, b.path, lease), false)
}

// To ask a lane takes its lock: where each operation comes with another context that is not worth
// it.
func TestALaneThatMissesOftenIsAskedNoMoreUntilTheReaperComes(t *testing.T) {
	b := newBackend()
	b.lane.Forget(true)
	kept := request(t)
	for range 1000 {
		unsampled(kept, t, b.path, lease)
		if knows(request(t), t, b.path, lease) {
			t.Fatal("the lane knows a context that is new")
		}
	}
	if knows(kept, t, b.path, lease) {
		t.Error("the lane is asked by all")
	}
	b.lane.Forget(true)
	unsampled(kept, t, b.path, lease)
	for range 1000 {
		if !knows(kept, t, b.path, lease) {
			t.Fatal("the lane does not know its newest context")
		}
		knows(request(t), t, b.path, lease)
	}
}
