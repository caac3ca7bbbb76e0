package runtimes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil && rt.Streams().Stats().Waiting == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		cancel()
	}()
	if _, err := rt.Streams().Acquire(ctx, "late"); !errors.Is(err, cuda.ErrNoStream) ||
		!errors.Is(err, context.Canceled) {
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

// Memory that is freed and waits for another stream's kernel is no reason to refuse, over
// either backend and with any guard.
func TestMemoryThatIsOnlyPendingIsWaitedFor(t *testing.T) {
	const device = 64 << 20
	for _, resource := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
		for _, guard := range []fencepost.GuardMode{fencepost.GuardOff, fencepost.GuardLedger, fencepost.GuardSample} {
			t.Run(string(resource)+" "+string(guard), func(t *testing.T) {
				rt := e2e.Open(t, fencepost.Config{Resource: resource, Guard: guard, Budget: 4 * device, Sim: sim.Config{Bytes: device}, Patience: time.Minute})
				first, second := e2e.Lease(t, rt, "first"), e2e.Lease(t, rt, "second")
				// Two blocks apart, so that the pool cannot serve the third by a wait on the device.
				low, between, high := e2e.Allocate(t, rt, device/4, first.ID(), "low"), e2e.Allocate(t, rt, device/8, first.ID(), "between"), e2e.Allocate(t, rt, device/4, first.ID(), "high")
				release := must.Get(e2e.Simulated(rt).Hold(first.Handle()))(t)
				e2e.Free(t, rt, low)
				e2e.Free(t, rt, high)
				time.AfterFunc(20*time.Millisecond, release)
				e2e.Free(t, rt, e2e.Allocate(t, rt, device/4*3, second.ID(), "large"))
				if st := rt.Stats(); st.MemoryWaits != st.MemoryWaitsServed || st.Failures != 0 {
					t.Errorf("%d waits, %d served, %d failures", st.MemoryWaits, st.MemoryWaitsServed, st.Failures)
				}
				e2e.Free(t, rt, between)
			})
		}
	}
}
