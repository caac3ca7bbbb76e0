package cuda_test

import (
	"errors"
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
