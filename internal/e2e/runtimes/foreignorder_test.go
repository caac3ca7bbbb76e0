package runtimes_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// adopt makes a stream of the program's own and brings it under an id.
func adopt(t *testing.T, rt *fencepost.Runtime, tag core.Tag) *cuda.Lease {
	t.Helper()
	h := must.Get(rt.Driver().StreamCreate())(t)
	l := must.Get(rt.Streams().Adopt(h, tag))(t)
	t.Cleanup(func() { _ = l.Release() }) // the test may have released it
	return l
}

// ordersItself makes later work of one stream wait for the work of another, as
// libraries do, and the runtime does not hear of it.
func ordersItself(t *testing.T, rt *fencepost.Runtime, from, to driver.Stream) {
	t.Helper()
	e := must.Get(rt.Driver().EventCreate())(t)
	e2e.Succeed(t, "ordering", errors.Join(rt.Driver().EventRecord(e, from), rt.Driver().StreamWait(to, e), rt.Driver().EventDestroy(e)))
}

// A library orders its own streams by the driver's events. What it then records
// looks unordered and is not: it is told, as not proven, and stops nobody.
func TestOrderMadeBetweenAdoptedStreamsStopsNobody(t *testing.T) {
	for _, policy := range []fencepost.GuardPolicy{fencepost.PolicyStop, fencepost.PolicyRefuse} {
		for name, streams := range map[string]func(*testing.T, *fencepost.Runtime) (x, y *cuda.Lease){
			"both adopted": func(t *testing.T, rt *fencepost.Runtime) (x, y *cuda.Lease) {
				return adopt(t, rt, "x"), adopt(t, rt, "y")
			},
			"the allocation's": func(t *testing.T, rt *fencepost.Runtime) (x, y *cuda.Lease) {
				return adopt(t, rt, "x"), e2e.Lease(t, rt, "y")
			},
			"the use's": func(t *testing.T, rt *fencepost.Runtime) (x, y *cuda.Lease) {
				return e2e.Lease(t, rt, "x"), adopt(t, rt, "y")
			},
			"the allocation's, gone": func(t *testing.T, rt *fencepost.Runtime) (x, y *cuda.Lease) {
				return adopt(t, rt, "x"), e2e.Lease(t, rt, "y")
			},
		} {
			for _, guard := range []string{"", "sample:1"} {
				t.Run(fmt.Sprintf("%s/%s/%s", policy, name, guard), func(t *testing.T) {
					rt := e2e.OpenDirty(t, fencepost.Config{Device: fencepost.Sim, Guard: fencepost.GuardMode(guard), GuardPolicy: policy, Async: cuda.AsyncConfig{ReapInterval: -1},
						OnStop: func(f core.Finding) { t.Errorf("stopped for %v", f) }})
					x, y := streams(t, rt)
					release := e2e.Hold(t, rt, x.Handle())
					b := e2e.Allocate(t, rt, 4096, x.ID(), "rows")
					ordersItself(t, rt, x.Handle(), y.Handle())
					if strings.HasSuffix(name, "gone") {
						e2e.Succeed(t, "giving the stream up", x.Release())
					}
					e2e.Succeed(t, "the work", rt.Driver().MemsetAsync(b.ID.Ptr, 1, b.Requested, y.Handle()))
					e2e.Succeed(t, "recording it", rt.Core().RecordBlockUse(t.Context(), b.ID, y.ID()))
					release()
					e2e.Free(t, rt, b)
					e2e.Succeed(t, "draining", rt.Drain(t.Context()))
					f := e2e.Single(t, rt, names.FindingUseBeforeAlloc)
					if !f.Unproven || f.Err != nil || !strings.Contains(f.Text, "if you ordered it yourself") || !strings.Contains(f.String(), "unproven") {
						t.Errorf("it is not said to be unproven: %v", f)
					}
					if n := rt.Findings().Total(); n != 1 {
						t.Errorf("%d findings: %v", n, rt.Findings().Recent())
					}
					if n := rt.Findings().Harmful()[names.FindingUseBeforeAlloc]; n != 0 {
						t.Errorf("%d count as proven", n)
					}
					if c := rt.Findings().CountsByTag(); len(c) != 1 || c[0].Kind != "use-before-alloc-ready-unproven" {
						t.Errorf("alerts are raised by %v", c)
					}
				})
			}
		}
	}
}

// Streams of the pool's own are ordered by the runtime and nobody else may: there
// it is a bug, and so is every other missing fence, on whatever stream.
func TestAMissingOrderThatIsProvenStopsTheProcess(t *testing.T) {
	for name, c := range map[string]struct {
		kind core.FindingKind
		run  func(t *testing.T, rt *fencepost.Runtime) (x, y *cuda.Lease, b core.Block)
	}{
		"before the allocation is ready, leased": {names.FindingUseBeforeAlloc, func(t *testing.T, rt *fencepost.Runtime) (x, y *cuda.Lease, b core.Block) {
			x, y = e2e.Lease(t, rt, "x"), e2e.Lease(t, rt, "y")
			t.Cleanup(e2e.Hold(t, rt, x.Handle()))
			return x, y, e2e.Allocate(t, rt, 4096, x.ID(), "rows")
		}},
		"behind a writer, adopted": {names.FindingMissingFence, func(t *testing.T, rt *fencepost.Runtime) (x, y *cuda.Lease, b core.Block) {
			x, y = adopt(t, rt, "x"), adopt(t, rt, "y")
			t.Cleanup(e2e.Hold(t, rt, x.Handle()))
			b = e2e.Allocate(t, rt, 4096, x.ID(), "rows")
			e2e.Succeed(t, "the writer", rt.Core().RecordBlockUse(t.Context(), b.ID, x.ID()))
			return x, y, b
		}},
	} {
		t.Run(name, func(t *testing.T) {
			stopped := make(chan core.Finding, 1)
			rt := e2e.OpenDirty(t, fencepost.Config{Device: fencepost.Sim, GuardPolicy: fencepost.PolicyStop, OnStop: func(f core.Finding) { stopped <- f }})
			_, y, b := c.run(t, rt)
			_ = rt.Core().RecordBlockUse(t.Context(), b.ID, y.ID())
			if f := <-stopped; f.Kind != c.kind || f.Unproven {
				t.Errorf("stopped for %v, want a proven %s", f, c.kind)
			}
		})
	}
}

// The history must not hold the guard's own refused call against the program.
func TestTheGuardMakesNoCallUnderALeaseThatWasGivenBack(t *testing.T) {
	for _, guard := range []string{"sample:1", "hunt", "hunt:bisect"} {
		t.Run(guard, func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Device: fencepost.Sim, Guard: fencepost.GuardMode(guard), LogLevel: logging.Uses, Async: cuda.AsyncConfig{ReapInterval: -1}})
			for _, l := range []*cuda.Lease{e2e.Lease(t, rt, "leased"), adopt(t, rt, "adopted")} {
				var blocks []core.Block
				for range 4 {
					blocks = append(blocks, e2e.Allocate(t, rt, 4096, l.ID(), "rows"))
				}
				e2e.Free(t, rt, blocks[0])
				e2e.Succeed(t, "giving the lease back", l.Release())
				e2e.Free(t, rt, blocks[1:]...)
				e2e.Succeed(t, "reaping", rt.ReapPending(t.Context()))
			}
			e2e.Succeed(t, "draining", rt.Drain(t.Context()))
			for _, r := range rt.History().Snapshot() {
				if r.Event.Err != nil {
					t.Errorf("the history holds a failure: %+v", r)
				}
			}
		})
	}
}
