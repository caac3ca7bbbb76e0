package guardcost

import (
	"errors"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
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

func TestGPUSwitchingTiersUnderLoadLosesNothing(t *testing.T) {
	rt := onGPU(t, fencepost.Config{})
	d := soakFor(t, 10*time.Second)
	s := &soak{T: t, rt: rt}
	s.run(d)
	s.judge(d)
}

func TestGPUTheDefaultGuardTakesLittleMemory(t *testing.T) {
	lib, err := libcuda.Load()
	if errors.Is(err, libcuda.ErrNoDriver) {
		t.Skip(err)
	}
	must(t, err)
	device, err := lib.Open(0)
	must(t, err)
	defer func() { must(t, device.Close()) }()
	compareMemory(t, device, loads(64, 1<<16))
}
