package runtimes_test

import (
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// What a hunt holds back is given up before anybody is told no, whoever says
// no, and over either backend. The oldest blocks go first.
func TestWhatAHuntHoldsIsGivenUpBeforeACallerIsRefused(t *testing.T) {
	const memory = 8 << 20
	for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool, fencepost.Direct} {
		for says, cfg := range map[string]fencepost.Config{
			"budget": {Budget: memory},
			"device": {Budget: 1 << 40, Sim: sim.Config{Bytes: memory}},
		} {
			t.Run(fmt.Sprint(backend, " ", says), func(t *testing.T) {
				cfg.Resource, cfg.Guard = backend, "hunt"
				cfg.GuardConfig = debugguard.Config{QuarantineBytes: 6 << 20}
				rt := e2e.Open(t, cfg)
				var freed []core.Block
				for range 60 {
					b := e2e.Allocate(t, rt, 200_000, core.DefaultStream, "old")
					e2e.Free(t, rt, b)
					freed = append(freed, b)
				}
				before := rt.Guard().GuardStats()
				if before.Quarantine.Bytes < 4<<20 || before.Canaries.Blocks == 0 {
					t.Fatalf("little to give up: %+v", before)
				}
				large := e2e.Allocate(t, rt, 3<<20, core.DefaultStream, "large")
				after := rt.Guard().GuardStats()
				if after.Relieved != before.Relieved+1 || after.Unguarded != 0 || after.Canaries.Blocks != 0 || after.GivenUp.Bytes <= before.GivenUp.Bytes {
					t.Errorf("before %+v\nafter %+v", before, after)
				}
				states := map[core.BlockState]int{}
				for i, b := range freed {
					s := rt.Core().State(b.ID)
					states[s]++
					if i > 0 && s != core.Quarantined && rt.Core().State(freed[i-1].ID) == core.Quarantined {
						t.Errorf("block %d went before block %d", i, i-1)
					}
				}
				// A device may need more than the bytes: they must lie together. So must those that a budget
				// lets the driver's pool hold.
				if says == "budget" && backend == fencepost.Pool && states[core.Quarantined] == 0 {
					t.Errorf("all of quarantine went: %v", states)
				}
				if s := rt.Stats(); s.Refusals != 0 {
					t.Errorf("nobody was told no, yet %d refusals", s.Refusals)
				}
				e2e.Free(t, rt, large)
				e2e.Succeed(t, "draining", rt.Drain(t.Context()))
			})
		}
	}
}

// A block that fits into the budget and not with its red zones goes without them.
func TestABlockAsLargeAsTheBudgetGoesWithoutRedZones(t *testing.T) {
	const memory = 8 << 20
	for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool, fencepost.Direct} {
		rt := e2e.Open(t, fencepost.Config{Resource: backend, Guard: "hunt", Budget: memory})
		all := e2e.Allocate(t, rt, memory, core.DefaultStream, "all")
		if g := rt.Guard().GuardStats(); g.Unguarded != 1 || g.Guarded != 0 {
			t.Errorf("%s: %+v", backend, g)
		}
		e2e.Free(t, rt, all)
	}
}
