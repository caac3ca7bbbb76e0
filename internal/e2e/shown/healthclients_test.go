package shown_test

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/health"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// However often a client asks for more than the budget is, in whatever way,
// nothing of the runtime is ill: no gap of the guard, no storm, no finding.
func TestNoClientDegradesARuntimeByAskingForTooMuch(t *testing.T) {
	const budget = 64 << 20
	for _, guard := range []string{"off", "ledger", "sample:1", "hunt", "hunt:bisect", "hunt:unmap"} {
		t.Run(guard, func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Budget: budget, Guard: fencepost.GuardMode(guard)})
			s := e2e.Lease(t, rt, "s")
			held := e2e.Allocate(t, rt, 40<<20, s.ID(), "held")
			for range 8 {
				e2e.Free(t, rt, e2e.Allocate(t, rt, 100_000, s.ID(), "old"))
			}
			for _, bytes := range []uint64{budget + 1, 120 << 20, 1 << 50, math.MaxUint64 / 2} {
				for range 20 {
					if _, err := rt.Allocate(t.Context(), core.Request{Bytes: bytes, Stream: s.ID(), Tag: "greedy"}); err == nil {
						t.Fatalf("%d bytes were granted", bytes)
					}
					if _, err := rt.Reserve(t.Context(), bytes, "greedy"); err == nil {
						t.Fatalf("a claim of %d bytes was granted", bytes)
					}
				}
			}
			// What would fit if others held less is refused too, a few times.
			for range 5 {
				if _, err := rt.Allocate(t.Context(), core.Request{Bytes: budget - 1<<20, Stream: s.ID(), Tag: "greedy"}); !errors.Is(err, core.ErrOutOfBudget) {
					t.Fatal(err)
				}
			}
			e2e.StaysWell(t, rt)
			if g := rt.Guard().GuardStats(); g.Unguarded != 0 || g.Unchecked != 0 {
				t.Errorf("no block was handed out without red zones, yet %+v", g)
			}
			ops := rt.Operations()
			if tooMuch, short := ops.Refusals(metrics.ReasonExceedsBudget), ops.Refusals(metrics.ReasonOutOfBudget); tooMuch != 160 || short != 5 {
				t.Errorf("%d and %d refusals are counted, want 160 that exceed the budget and 5", tooMuch, short)
			}
			e2e.Free(t, rt, held)
		})
	}
}

// Sixty clients at once need what quarantine holds: it gives way, which is what it
// is for, and nothing is ill.
func TestRelievedClientsDegradeNothing(t *testing.T) {
	const bytes = 200_000
	rt := e2e.Open(t, fencepost.Config{Budget: 16 << 20, Guard: "hunt", GuardConfig: debugguard.Config{QuarantineBytes: 12 << 20}})
	for range 60 {
		e2e.Free(t, rt, e2e.Allocate(t, rt, bytes, core.DefaultStream, "old"))
	}
	var clients, allHold sync.WaitGroup
	allHold.Add(60)
	for range 60 {
		clients.Go(func() {
			b, err := rt.Allocate(t.Context(), core.Request{Bytes: bytes, Tag: "client"})
			allHold.Done()
			if err != nil {
				t.Error(err)
				return
			}
			allHold.Wait() // all hold a block at a time, however busy the machine is
			if _, err := rt.Deallocate(t.Context(), b.ID); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	if g := rt.Guard().GuardStats(); g.Relieved == 0 {
		t.Fatalf("nothing had to give way: %+v", g)
	}
	e2e.StaysWell(t, rt)
}

// A block that was handed out without red zones is a gap.
func TestABlockWithoutRedZonesDegrades(t *testing.T) {
	const budget = 8 << 20
	rt := e2e.Open(t, fencepost.Config{Budget: budget, Guard: "hunt", HealthHold: time.Hour})
	e2e.Free(t, rt, e2e.Allocate(t, rt, budget, core.DefaultStream, "all"))
	e2e.Becomes(t, rt, names.HealthDegraded, names.HealthGuardGaps)
}

// What a guard that is turned down to its ledger leaves undone is nobody's loss.
func TestAGuardThatIsTurnedDownHasNoGaps(t *testing.T) {
	r, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Guard: "hunt"})
	must.Do(t, err)
	b, err := r.Allocate(t.Context(), core.Request{Bytes: 4096})
	must.Do(t, err)
	rules, ledger := health.NewRules(health.DefaultHold), "ledger"
	rules.Look(e2e.ReadHealth(r), time.Now())
	must.Do(t, r.SwitchGuard(t.Context(), fencepost.GuardChange{Mode: (*fencepost.GuardMode)(&ledger)}))
	must.Get(r.Deallocate(t.Context(), b.ID))(t)
	if r.Guard().GuardStats().Unchecked == 0 {
		t.Error("nothing was left undone, so nothing was tested")
	}
	if signs := rules.Look(e2e.ReadHealth(r), time.Now()); len(signs) != 0 {
		t.Errorf("%+v", signs)
	}
	if _, err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
