package runtimes_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

var everyGuard = []string{"off", "ledger", "sample", "sample:1", "hunt", "hunt:bisect", "hunt:unmap"}

// freeTwice frees a slice as a function does that frees it beside a deferred free,
// and returns the error of the second.
func freeTwice(ctx context.Context, t *testing.T, rt *fencepost.Runtime) (x *cuda.Slice[float32], second error) {
	t.Helper()
	x, err := cuda.Alloc[float32](ctx, rt.Memory(), 1<<18, cuda.AllocOptions{Tag: "twice"}) // large enough to keep stacks
	e2e.Succeed(t, "alloc", err)
	defer func() { second = x.Free(ctx) }()
	e2e.Succeed(t, "the first free", x.Free(ctx))
	return x, nil
}

// A second free of a slice is a finding in every mode, with what the guard
// remembers, and nobody is stopped, alarmed or kept from work by it.
func TestASecondFreeOfASliceIsAFindingThatHarmsNobody(t *testing.T) {
	for _, guard := range everyGuard {
		for _, policy := range []fencepost.GuardPolicy{fencepost.PolicyReport, fencepost.PolicyStop} {
			t.Run(guard+" "+string(policy), func(t *testing.T) {
				var told atomic.Int64
				log := &lines{}
				cfg := fencepost.Config{Guard: fencepost.GuardMode(guard), GuardPolicy: policy, Incidents: t.TempDir(), OnFinding: func(core.Finding) { told.Add(1) },
					OnStop: func(f core.Finding) { t.Errorf("it stops the process: %v", f) }}
				cfg.Findings.Logger = slog.New(slog.NewTextHandler(log, nil))
				rt := e2e.OpenDirty(t, cfg)
				x, second := freeTwice(t.Context(), t, rt)
				id := x.BlockID()
				uaf, ok := errors.AsType[*core.UseAfterFreeError](second)
				if !ok || uaf.Generation != id.Generation || uaf.Tag != "twice" || !strings.Contains(second.Error(), `"twice"`) ||
					!strings.Contains(second.Error(), id.Generation.String()) || !strings.Contains(second.Error(), "free it in one place") {
					t.Errorf("the second free says %v", second)
				}
				f := e2e.Single(t, rt, names.FindingDoubleFree)
				if f.Source != "slice" || f.Victim.Tag != "twice" || f.Victim.ID != id || f.Victim.State == core.Live || f.Time.IsZero() || !strings.Contains(f.Text, "doublefree_test.go") {
					t.Errorf("found %+v: %v", f, f)
				}
				if !strings.Contains(f.CallStack.Lines()[0], "freeTwice") {
					t.Errorf("the second free is at %v", f.CallStack.Lines())
				}
				if kept := guard != "off"; (len(f.AllocStack) > 0) != kept || (len(f.FreeStack) > 0) != kept {
					t.Errorf("the stacks are %v and %v", f.AllocStack.Lines(), f.FreeStack.Lines())
				}
				if text := e2e.Gather(t, rt); told.Load() != 1 || !strings.Contains(text, `gpumem_findings_total{device="0",kind="double-free",tag="twice"} 1`) {
					t.Errorf("it was told %d times, and the metric is wrong", told.Load())
				}
				if all := strings.Join(log.all(), "\n"); strings.Count(all, "kind=double-free source=slice tag=twice") != 1 || !strings.Contains(all, "level=WARN") || strings.Contains(all, "level=ERROR") {
					t.Errorf("the log says %s", all)
				}
				e2e.StaysWell(t, rt)
				e2e.Probes(t, rt, 200, 200, "ok")
				_, err := rt.Close(t.Context())
				e2e.Succeed(t, "close", err)
				if files, err := os.ReadDir(cfg.Incidents); err != nil || len(files) != 0 {
					t.Errorf("it left files: %v %v", files, err)
				}
				if kinds := rt.Findings().Counts(); len(kinds) != 1 {
					t.Errorf("beside it were found %v", kinds)
				}
			})
		}
	}
}

// Of many who free one slice at the same moment one does, and the rest are
// findings: exactly so many, of which the log and the memory of findings have one.
func TestOfManyWhoFreeASliceOneDoes(t *testing.T) {
	const slices, owners = 60, 8
	for _, guard := range []string{"off", "sample:1", "hunt"} {
		t.Run(guard, func(t *testing.T) {
			log := &lines{}
			cfg := fencepost.Config{Guard: fencepost.GuardMode(guard)}
			cfg.Findings.Logger = slog.New(slog.NewTextHandler(log, nil))
			rt := e2e.OpenDirty(t, cfg)
			var freed atomic.Int64
			for range slices {
				x, err := cuda.Alloc[int64](t.Context(), rt.Memory(), 100, cuda.AllocOptions{Tag: "shared"})
				e2e.Succeed(t, "alloc", err)
				view, err := x.View(10, 20)
				e2e.Succeed(t, "view", err)
				begin := make(chan struct{})
				var all sync.WaitGroup
				for i := range owners {
					all.Go(func() {
						<-begin
						owned := []*cuda.Slice[int64]{x, view}[i%2]
						if err := owned.Free(t.Context()); err == nil {
							freed.Add(1)
						} else if !errors.Is(err, core.ErrUseAfterFree) {
							t.Error(err)
						}
					})
				}
				close(begin)
				all.Wait()
			}
			if n := rt.Findings().Counts()[names.FindingDoubleFree]; freed.Load() != 2*slices || n != slices*(owners-2) {
				t.Errorf("%d frees and %d findings, want %d and %d", freed.Load(), n, 2*slices, slices*(owners-2))
			}
			if n := strings.Count(strings.Join(log.all(), "\n"), "double-free"); n != 1 || len(rt.Findings().Recent()) != 1 {
				t.Errorf("one place in the code is logged %d times and kept %d times", n, len(rt.Findings().Recent()))
			}
			left, err := rt.Close(t.Context())
			if err != nil || len(left.Leaks) != 0 {
				t.Errorf("%v; left over: %+v", err, left)
			}
		})
	}
}

// A free that failed may be tried again: that is no second one. Nor is there
// anything to find of an empty slice, which has no block.
func TestAFreeThatIsTriedAgainIsNoFinding(t *testing.T) {
	for _, guard := range []string{"off", "ledger"} { // the others free later
		device, err := sim.Open(sim.Config{})
		e2e.Succeed(t, "device", err)
		t.Cleanup(func() { e2e.Succeed(t, "closing the device", device.Close()) })
		faults := drivertest.NewFaults(device)
		rt := e2e.Open(t, fencepost.Config{Resource: fencepost.Async, Driver: faults, Guard: fencepost.GuardMode(guard)})
		x, err := cuda.Alloc[byte](t.Context(), rt.Memory(), 5000, cuda.AllocOptions{Tag: "again"})
		e2e.Succeed(t, "alloc", err)
		faults.FailEvery(drivertest.MemFreeAsync, driver.InvalidHandle)
		for range 3 {
			if err := x.Free(t.Context()); !errors.Is(err, core.ErrDriver) {
				t.Errorf("%s: a free that the driver refuses: %v", guard, err)
			}
		}
		faults.Clear()
		e2e.Succeed(t, "the free that works", x.Free(t.Context()))

		empty, err := cuda.Alloc[byte](t.Context(), rt.Memory(), 0, cuda.AllocOptions{})
		e2e.Succeed(t, "alloc", err)
		e2e.Succeed(t, "free", empty.Free(t.Context()))
		if err := empty.Free(t.Context()); !errors.Is(err, core.ErrUseAfterFree) {
			t.Errorf("%s: the second free of nothing: %v", guard, err)
		}
	}
}

// A host buffer's second free is found too, by its size: it has no tag.
func TestASecondFreeOfAHostBufferIsAFinding(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "off"})
	b, err := cuda.AllocHost[int64](rt.Memory(), 100)
	e2e.Succeed(t, "alloc", err)
	e2e.Succeed(t, "free", b.Free(t.Context()))
	if err := b.Free(t.Context()); !errors.Is(err, core.ErrUseAfterFree) || !strings.Contains(err.Error(), "800 bytes") {
		t.Errorf("the second free says %v", err)
	}
	if f := e2e.Single(t, rt, names.FindingDoubleFree); f.Source != "slice" || f.Victim.Requested != 800 || !strings.Contains(f.CallStack.Lines()[0], "TestASecondFree") {
		t.Errorf("found %v", f)
	}
	e2e.StaysWell(t, rt)
}
