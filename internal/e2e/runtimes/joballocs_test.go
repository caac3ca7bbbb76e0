//go:build !race

// The race detector makes pools leaky on purpose, so allocations are counted
// without it: scripts/test runs these tests apart.

package runtimes_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// A job's launch does what the kernel's own does, and allocates no more.
func TestLaunchesOfAJobDoNotAllocateMoreThanTheKernels(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Driver: &drivertest.Null{}, Guard: "off", Budget: 1 << 30, Async: cuda.AsyncConfig{ReapInterval: -1}})
	m, err := rt.Load("null", []byte("null"))
	e2e.Succeed(t, "loading", err)
	k, err := m.Kernel("null")
	e2e.Succeed(t, "looking the kernel up", err)
	ctx, grid := t.Context(), cuda.Blocks1D(256, 256)
	e2e.Succeed(t, "the job", rt.Do(ctx, "job", func(j *fencepost.Job) error {
		from, err := fencepost.Alloc[uint32](j, 256)
		if err != nil {
			return err
		}
		to, err := fencepost.Alloc[uint32](j, 256)
		if err != nil {
			return err
		}
		count := func(launch func() error) float64 {
			return testing.AllocsPerRun(1000, func() {
				if err := launch(); err != nil {
					t.Fatal(err)
				}
			})
		}
		uses, args := []core.Use{from.Use(core.Read), to.Use(core.Write)}, []driver.Arg{from.Arg(), to.Arg(), driver.U32(256)}
		kernels := count(func() error { return k.Launch(ctx, rt, j.Stream(), grid, uses, args...) })
		jobs := count(func() error {
			return j.Launch(k, grid, fencepost.Reads(from), fencepost.Writes(to), fencepost.Value(uint32(256)))
		})
		if jobs > kernels {
			t.Errorf("%v allocations a launch of a job, and %v a launch of a kernel", jobs, kernels)
		}
		t.Logf("%v allocations a launch", jobs)
		return nil
	}))
}
