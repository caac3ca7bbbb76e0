package bench

import (
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

// The benchmarks of the guard's tiers on a GPU: what its launches and
// comparisons cost beside the driver's own time.

func realGPU(b *testing.B) func() driver.Driver {
	b.Helper()
	library, err := libcuda.Load()
	if err != nil {
		b.Skip(err)
	}
	device, err := library.Open(0)
	check(b, err)
	b.Cleanup(func() { check(b, device.Close()) })
	return func() driver.Driver { return device }
}

func BenchmarkGPUGuardPair(b *testing.B) {
	overTiers(b, realGPU(b), fencepost.Async, []int{1, 2, 16}, pairs)
}

// BenchmarkGPUPoolPair is BenchmarkGPUGuardPair over the runtime's own pool.
func BenchmarkGPUPoolPair(b *testing.B) {
	overTiers(b, realGPU(b), fencepost.Pool, []int{1, 2, 16}, pairs)
}

func BenchmarkGPUGuardLaunch(b *testing.B) {
	overTiers(b, realGPU(b), fencepost.Async, []int{1, 2, 16}, launchesOfTwo)
}
func BenchmarkGPUGuardLife(b *testing.B) {
	overTiers(b, realGPU(b), fencepost.Async, []int{1, 2, 16}, lives)
}
