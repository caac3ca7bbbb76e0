package stackconformance_test

import (
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e/stackconformance"
)

// A layer that declines a third of what comes by the quick path, between any two layers and
// between all of them, and a decorator that knows nothing of it: the stack conforms.
func TestStacksConformWhereverTheQuickPathEnds(t *testing.T) {
	for _, order := range quickOrders() {
		t.Run(stackconformance.Name(order), func(t *testing.T) {
			stackconformance.Run(t, order, simulated(sim.Seeded(13), &cuda.PoolConfig{}))
		})
	}
}

func quickOrders() (all [][]string) {
	for _, mode := range []string{"guard off", "guard ledger", "guard sample"} {
		all = append(all, []string{"gate", "logging", "gate", "budget", "gate", mode, "gate", "telemetry", "gate"})
	}
	stack := []string{"logging", "budget", "guard ledger", "telemetry"}
	for place := range len(stack) + 1 {
		for _, between := range []string{"gate", "stranger"} {
			if testing.Short() && (between == "gate" || place != 2) {
				continue // gates stand everywhere above
			}
			all = append(all, slices.Insert(slices.Clone(stack), place, between))
		}
	}
	return all
}
