package cuda_test

import (
	"errors"
	"math"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

func TestCodeIsLoadedOnceInAContext(t *testing.T) {
	b := newBench(t)
	load := func() *cuda.Module {
		m, err := cuda.LoadModule(b.Driver, driver.Image{Name: mixImage})
		must(t, err)
		return m
	}
	first, second := load(), load()
	equal(t, "loads", b.faults.Calls(drivertest.ModuleLoad), 1)
	must(t, first.Unload())
	if _, err := second.Kernel(mixKernel); err != nil {
		t.Errorf("the second user lost its code: %v", err)
	}
	for name, use := range map[string]func() error{
		"Kernel": func() error { _, err := first.Kernel(mixKernel); return err },
		"Unload": first.Unload,
	} {
		if err := use(); !errors.Is(err, core.ErrClosed) {
			t.Errorf("%s after Unload: %v", name, err)
		}
	}
	b.faults.FailMethod(drivertest.ModuleUnload, 1, driver.InvalidHandle)
	if err := second.Unload(); !errors.Is(err, core.ErrDriver) {
		t.Errorf("got %v, want the driver's error", err)
	}
	must(t, second.Unload())
	lost := newBench(t, dirty)
	m, err := cuda.LoadModule(lost.Driver, driver.Image{Name: mixImage})
	must(t, err)
	lost.Sim.LoseContext(driver.IllegalAddress)
	expect.Error(t, m.Unload(), core.ErrSticky, "Unload on a lost device")
	expect.Error(t, m.Unload(), core.ErrClosed, "Unload again")
	third := load()
	equal(t, "loads", b.faults.Calls(drivertest.ModuleLoad), 2)
	must(t, third.Unload())
}

// The driver refuses them on a GPU, and the simulated device too: nobody is asked, and nothing is
// announced.
func TestSizesThatNoDeviceTakesAreRefused(t *testing.T) {
	b := newBench(t)
	l := b.Lease(t, "test")
	for name, g := range map[string]cuda.Grid{
		"blocks of nothing": cuda.Blocks1D(10, 0), "blocks of less": cuda.Blocks1D(10, -256), "less than nothing": cuda.Blocks1D(-1, 256),
		"large blocks": cuda.Blocks1D(10, 1025), "huge blocks": cuda.Blocks1D(10, math.MaxInt), "too many blocks": cuda.Blocks1D(math.MaxInt, 1),
		"as many as wrap": cuda.Blocks1D(1<<32+1, 1), "one too many": cuda.Blocks1D(math.MaxInt32+1, 1),
		"large in y": {Block: driver.Dim{Y: 1025}}, "large in z": {Block: driver.Dim{Z: 65}}, "large in all": {Block: driver.Dim{X: 32, Y: 32, Z: 2}},
		"a wide grid": {Grid: driver.Dim{Y: 65536}}, "a deep grid": {Grid: driver.Dim{Z: 65536}},
	} {
		launches := b.faults.Calls(drivertest.Launch)
		expect.Error(t, b.kernel.Launch(ctx, b.Runtime, l, g, nil, driver.U64(1)), core.ErrInvalidRequest, name)
		expect.Error(t, b.kernel.Enqueue(l.Handle(), g, driver.U64(1)), core.ErrInvalidRequest, name)
		equal(t, "launches", b.faults.Calls(drivertest.Launch), launches)
	}
	for name, g := range map[string]cuda.Grid{
		"no threads": cuda.Blocks1D(0, 256), "one": cuda.Blocks1D(1, 1), "the largest": cuda.Blocks1D(math.MaxInt32, 1024), "many": {Grid: driver.Dim{X: math.MaxInt32, Y: 65535, Z: 65535}, Block: driver.Dim{X: 16, Y: 1, Z: 64}},
	} {
		if err := b.kernel.Launch(ctx, b.Runtime, l, g, nil, driver.U64(1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if g := cuda.Blocks1D(257, 256); g.Grid.X != 2 || g.Block.X != 256 {
		t.Errorf("257 threads in blocks of 256 are %+v", g)
	}
}
