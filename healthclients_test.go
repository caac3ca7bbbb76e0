package fencepost_test

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/health"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// staysWell checks that nothing since Open is a reason to call the runtime ill.
func staysWell(t *testing.T, rt *fencepost.Runtime) {
	t.Helper()
	if signs := health.NewRules(fencepost.DefaultHealthHold).Look(fencepost.ReadHealth(rt), time.Now()); len(signs) != 0 {
		t.Errorf("it is ill: %+v", signs)
	}
	if h := rt.Health(); h.State != core.HealthOK {
		t.Errorf("it says %+v", h)
	}
}

// However often a client asks for more than the budget is, in whatever way,
// nothing of the runtime is ill: no gap of the guard, no storm, no finding.
func TestNoClientDegradesARuntimeByAskingForTooMuch(t *testing.T) {
	const budget = 64 << 20
	for _, guard := range []string{"off", "ledger", "sample:1", "hunt", "hunt:bisect", "hunt:unmap"} {
		t.Run(guard, func(t *testing.T) {
			rt := open(t, fencepost.Config{Budget: budget, Guard: guard})
			s := lease(t, rt, "s")
			held := allocate(t, rt, 40<<20, s.ID(), "held")
			for range 8 {
				free(t, rt, allocate(t, rt, 100_000, s.ID(), "old"))
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
			staysWell(t, rt)
			if g := rt.Guard().GuardStats(); g.Unguarded != 0 || g.Unchecked != 0 {
				t.Errorf("no block was handed out without red zones, yet %+v", g)
			}
			ops := rt.Operations()
			if tooMuch, short := ops.Refusals(telemetry.ReasonExceedsBudget), ops.Refusals(telemetry.ReasonOutOfBudget); tooMuch != 160 || short != 5 {
				t.Errorf("%d and %d refusals are counted, want 160 that exceed the budget and 5", tooMuch, short)
			}
			free(t, rt, held)
		})
	}
}

// Sixty clients at once need what quarantine holds: it gives way, which is what it
// is for, and nothing is ill.
func TestRelievedClientsDegradeNothing(t *testing.T) {
	const bytes = 200_000
	rt := open(t, fencepost.Config{Budget: 16 << 20, Guard: "hunt", GuardConfig: debugguard.Config{QuarantineBytes: 12 << 20}})
	for range 60 {
		free(t, rt, allocate(t, rt, bytes, core.DefaultStream, "old"))
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
	staysWell(t, rt)
}

// A block that was handed out without red zones is a gap.
func TestABlockWithoutRedZonesDegrades(t *testing.T) {
	const budget = 8 << 20
	rt := open(t, fencepost.Config{Budget: budget, Guard: "hunt", HealthHold: time.Hour})
	free(t, rt, allocate(t, rt, budget, core.DefaultStream, "all"))
	becomes(t, rt, core.HealthDegraded, core.HealthGuardGaps)
}
