package runtimes_test

import (
	"context"
	"math/rand/v2"
	"testing"

	fencepost "github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A service like the demo: columns of very different sizes, most of the
// device's memory in use, each freed after some others.
func TestSamplingCostsAtMostHalfAPercentOfTheDevice(t *testing.T) {
	const memory = 1 << 30
	rt := e2e.Open(t, fencepost.Config{Device: fencepost.Sim, Sim: sim.Config{Bytes: memory}})
	ctx, random := context.Background(), rand.New(rand.NewPCG(5, 5))
	on := e2e.Lease(t, rt, "thrift")
	var live []core.Block
	var callers, most, quarantined uint64
	for range 4000 {
		b := must.Get(rt.Allocate(ctx, core.Request{Bytes: 1 + random.Uint64N(1<<(8+random.Uint64N(16))), Stream: on.ID(), Tag: "column"}))(t)
		live, callers = append(live, b), callers+b.Bytes
		for callers > memory/2 {
			i := random.IntN(len(live))
			b := live[i]
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			callers -= b.Bytes
			must.Get(rt.Deallocate(ctx, b.ID))(t)
		}
		// What the layer below the guard holds and no caller, less what only
		// waits for the device to pass its free.
		below := rt.Guard().Unwrap().Stats()
		most, quarantined = max(most, below.Live.Bytes-callers), max(quarantined, rt.Guard().GuardStats().Quarantine.Bytes)
	}
	guarded := rt.Guard().GuardStats().Guarded
	t.Logf("%d blocks guarded; at most %d bytes on top of what callers hold, %.2f %% of the device, %d of them in quarantine",
		guarded, most, 100*float64(most)/memory, quarantined)
	if most > memory/200 {
		t.Errorf("the guard took %d bytes, %.2f %% of the device", most, 100*float64(most)/memory)
	}
	if guarded < 4 || quarantined == 0 {
		t.Errorf("%d blocks guarded, %d bytes in quarantine: the load shows nothing", guarded, quarantined)
	}
	for _, b := range live {
		must.Get(rt.Deallocate(ctx, b.ID))(t)
	}
}

// A program with a small budget on a large device: what the guard holds back is
// sized by the budget, so that a program which needs nearly all of it is served
// without the guard's giving anything up.
func TestQuarantineFollowsABudgetThatIsSmallerThanTheDevice(t *testing.T) {
	const budget, column = 8 << 20, 4 << 10
	for guard, most := range map[string]uint64{"sample:1": budget / 100, "hunt": budget / 8} {
		t.Run(guard, func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Device: fencepost.Sim, Sim: sim.Config{Bytes: 16 << 30},
				// The driver's pool says only after a try whether it grows, so it gives up
				// quarantine for a budget of few pages.
				Resource: fencepost.Pool, Budget: budget, Guard: fencepost.GuardMode(guard)})
			ctx, on := context.Background(), e2e.Lease(t, rt, "thrift")
			var quarantined uint64
			for range 400 {
				var live []core.Block
				for _, bytes := range []uint64{column, budget / 8, budget / 8, 5*budget/8 - most} { // seven of eight parts
					b := must.Get(rt.Allocate(ctx, core.Request{Bytes: bytes, Stream: on.ID(), Tag: "column"}))(t)
					live = append(live, b)
				}
				for _, b := range live {
					must.Get(rt.Deallocate(ctx, b.ID))(t)
				}
				quarantined = max(quarantined, rt.Guard().GuardStats().Quarantine.Bytes)
			}
			st := rt.Guard().GuardStats()
			if quarantined > most || st.Relieved > 0 || st.Unguarded > 0 {
				t.Errorf("%d bytes in quarantine, more than %d, or given up: %+v", quarantined, most, st)
			}
			if quarantined == 0 {
				t.Error("nothing was quarantined: the load shows nothing")
			}
		})
	}
}
