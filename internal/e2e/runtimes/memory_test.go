package runtimes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestAFullStreamPoolNamesTheLongestLease(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Streams: 2})
	e2e.Lease(t, rt, "ingest")
	e2e.Lease(t, rt, "query")
	if _, err := rt.Streams().TryAcquire(t.Context(), "late"); !errors.Is(err, cuda.ErrNoStream) || !strings.Contains(err.Error(), `2 of 2 are leased`) || !strings.Contains(err.Error(), `"ingest"`) {
		t.Errorf("got %v, want a refusal that names who holds a stream", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := rt.Streams().Acquire(ctx, "late"); !errors.Is(err, cuda.ErrNoStream) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a wait bounded by the context", err)
	}
	if st := rt.Streams().Stats(); st.Refused != 2 || st.Leased != 2 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}

func TestAViewKeepsItsBlock(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{})
	s := e2e.Lease(t, rt, "s")
	keys := must.Get(cuda.Alloc[uint32](t.Context(), rt.Memory(), 100, cuda.AllocOptions{Stream: s.ID(), Tag: "keys"}))(t)
	view := must.Get(keys.View(10, 20))(t)
	if view.BlockID() != keys.BlockID() || view.Ptr() != keys.Ptr()+40 || view.Len() != 10 {
		t.Errorf("the view is %+v at %#x, its slice %+v at %#x", view.BlockID(), view.Ptr(), keys.BlockID(), keys.Ptr())
	}
	must.Do(t, keys.Free(t.Context()))
	id := view.BlockID()
	if got := rt.Core().State(id); got != core.Live {
		t.Fatalf("the block is %v with a view of it", got)
	}
	expect.Success(t, cuda.CopyToDevice(t.Context(), view, s.ID(), make([]uint32, 10)))
	must.Do(t, view.Free(t.Context()))
	expect.Error(t, view.Free(t.Context()), core.ErrUseAfterFree, "a view freed twice")
	if f := e2e.Single(t, rt, names.FindingDoubleFree); f.Victim.ID != id || f.Source != "slice" {
		t.Errorf("found %v", f)
	}
	if got := rt.Core().State(id); got == core.Live {
		t.Error("the block is live without a slice or a view")
	}
}
