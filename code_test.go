package fencepost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

func TestCodeIsUnloadedWithTheRuntimeWhetherOrNotItWasBefore(t *testing.T) {
	device, err := sim.Open(sim.Config{})
	succeed(t, "opening the device", err)
	t.Cleanup(func() { succeed(t, "closing the device", device.Close()) })
	faults := drivertest.NewFaults(device)
	rt := open(t, fencepost.Config{Driver: faults})
	own := faults.Calls(drivertest.ModuleLoad)
	kept, err := rt.Load("kept", nil, addTwin)
	succeed(t, "loading", err)
	shared, err := rt.Load("kept", nil, addTwin)
	succeed(t, "loading again", err)
	early, err := rt.Load("early", nil, addTwin)
	succeed(t, "loading", err)
	succeed(t, "unloading", errors.Join(early.Unload(), shared.Unload()))
	if n := faults.Calls(drivertest.ModuleLoad) - own; n != 2 {
		t.Errorf("%d loads, want 2: what is loaded is shared", n)
	}
	if _, err := kept.Kernel("add"); err != nil {
		t.Errorf("what another user still has: %v", err)
	}
	faults.FailMethod(drivertest.ModuleUnload, 2, driver.Unknown) // behind the guard's own; it is tried once more
	_, err = rt.Close(context.Background())
	succeed(t, "closing", err)
	if loaded, unloaded := faults.Calls(drivertest.ModuleLoad), faults.Calls(drivertest.ModuleUnload)-faults.Failed(drivertest.ModuleUnload); loaded != unloaded {
		t.Errorf("%d modules were loaded and %d unloaded", loaded, unloaded)
	}
	if _, err := rt.Load("late", nil, addTwin); !errors.Is(err, core.ErrClosed) {
		t.Errorf("after the close: %v", err)
	}
}

func TestCodeThatCannotBeLoadedIsATypedError(t *testing.T) {
	rt := open(t, fencepost.Config{})
	var d *core.DriverError
	if _, err := rt.Load("without twins", []byte("ptx")); !errors.As(err, &d) || d.Code != driver.InvalidImage {
		t.Errorf("without twins: %v", err)
	}
	for name, err := range map[string]error{
		"no name":             errorOf(rt.Load("", nil, addTwin)),
		"a twin without Run":  errorOf(rt.Load("no run", nil, sim.Kernel{Name: "add"})),
		"a twin without Name": errorOf(rt.Load("no name", nil, sim.Kernel{Run: func(*sim.Exec) {}})),
	} {
		if !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := rt.Load("job.test", nil, addTwin)
	succeed(t, "loading", err)
	if _, err := m.Kernel("subtract"); !errors.As(err, &d) || d.Code != driver.NotFound {
		t.Errorf("a kernel that there is not: %v", err)
	}
}

// Twins that were registered by hand stay.
func TestLoadingWithoutTwinsKeepsThoseThatAreRegistered(t *testing.T) {
	rt := open(t, fencepost.Config{})
	succeed(t, "registering", simulated(rt).RegisterModule("by hand", addTwin))
	m, err := rt.Load("by hand", nil)
	succeed(t, "loading", err)
	_, err = m.Kernel("add")
	succeed(t, "looking it up", err)
	_, err = cuda.LoadModule(nil, driver.Image{Name: "x"})
	if !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("without a driver: %v", err)
	}
}
