package guardcost

import (
	"errors"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/traces"
)

// What the guard costs on the GPU. Nothing is demanded of the figures: a
// machine that is busy with other things would fail for it.
func TestGPUGuardCost(t *testing.T) {
	rt := onGPU(t, fencepost.Config{})
	const us = time.Microsecond
	show(t, rt, compareAll(t, rt, plan{Config: Config{Pairs: 21, Side: 50 * time.Millisecond},
		rows: []int{1 << 20, 1 << 14}, goroutines: 4, kernels: []time.Duration{10 * us, 50 * us}, threads: []int{1, 4}, traces: traces.Names()}))
}

func TestGPUSwitchingTiersUnderLoadLosesNothing(t *testing.T) {
	rt := onGPU(t, fencepost.Config{})
	d := soakFor(t, 10*time.Second)
	s := &soak{T: t, rt: rt}
	s.soakAndJudge(d)
}

func TestGPUTheDefaultGuardTakesLittleMemory(t *testing.T) {
	compareMemory(t, firstGPU(t), loads(64, 1<<16))
}

// What a launch on another stream takes while 1 GiB is being compared.
func TestGPULaunchesMakeTheSameCallsBesideEveryVerification(t *testing.T) {
	newLaunchPath(t, firstGPU(t), 1<<30).report(1<<30, 20, 10)
}

// firstGPU opens the GPU itself, or skips the test and says why.
func firstGPU(t *testing.T) driver.Driver {
	t.Helper()
	lib, err := libcuda.Load()
	if errors.Is(err, libcuda.ErrNoDriver) {
		t.Skip(err)
	}
	must(t, err)
	device, err := lib.Open(0)
	must(t, err)
	t.Cleanup(func() { must(t, device.Close()) })
	return device
}
