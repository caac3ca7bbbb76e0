package guardcost

import (
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/traces"
)

// What the guard costs on the GPU. Nothing is demanded of the figures: a
// machine that is busy with other things would fail for it.
func TestGPUGuardCost(t *testing.T) {
	rt := onGPU(t, fencepost.Config{})
	const us = time.Microsecond
	show(t, rt, compareAll(t, rt, plan{Config: Config{Pairs: 21, Side: 50 * time.Millisecond},
		rows: []int{1 << 20, 1 << 14}, goroutines: 4, kernels: []time.Duration{10 * us, 20 * us, 50 * us}, threads: []int{1, 4}, traces: traces.Names()}))
}
