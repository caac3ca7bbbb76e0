package runtimes_test

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
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

func TestCodeIsUnloadedWithTheRuntimeWhetherOrNotItWasBefore(t *testing.T) {
	device, err := sim.Open(sim.Config{})
	e2e.Succeed(t, "opening the device", err)
	t.Cleanup(func() { e2e.Succeed(t, "closing the device", device.Close()) })
	faults := drivertest.NewFaults(device)
	rt := e2e.Open(t, fencepost.Config{Driver: faults})
	own := faults.Calls(drivertest.ModuleLoad)
	kept, err := rt.Load("kept", nil, e2e.AddTwin)
	e2e.Succeed(t, "loading", err)
	shared, err := rt.Load("kept", nil, e2e.AddTwin)
	e2e.Succeed(t, "loading again", err)
	early, err := rt.Load("early", nil, e2e.AddTwin)
	e2e.Succeed(t, "loading", err)
	e2e.Succeed(t, "unloading", errors.Join(early.Unload(), shared.Unload()))
	if n := faults.Calls(drivertest.ModuleLoad) - own; n != 2 {
		t.Errorf("%d loads, want 2: what is loaded is shared", n)
	}
	if _, err := kept.Kernel("add"); err != nil {
		t.Errorf("what another user still has: %v", err)
	}
	faults.FailMethod(drivertest.ModuleUnload, 2, driver.Unknown) // behind the guard's own; it is tried once more
	_, err = rt.Close(context.Background())
	e2e.Succeed(t, "closing", err)
	if loaded, unloaded := faults.Calls(drivertest.ModuleLoad), faults.Calls(drivertest.ModuleUnload)-faults.Failed(drivertest.ModuleUnload); loaded != unloaded {
		t.Errorf("%d modules were loaded and %d unloaded", loaded, unloaded)
	}
	expect.ErrorOf(rt.Load("late", nil, e2e.AddTwin))(t, core.ErrClosed, "after the close")
}

func TestCodeThatCannotBeLoadedIsATypedError(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	var d *core.DriverError
	if _, err := rt.Load("without twins", []byte("ptx")); !errors.As(err, &d) || d.Code != driver.InvalidImage {
		t.Errorf("without twins: %v", err)
	}
	for name, err := range map[string]error{
		"no name":             e2e.ErrorOf(rt.Load("", nil, e2e.AddTwin)),
		"a twin without Run":  e2e.ErrorOf(rt.Load("no run", nil, sim.Kernel{Name: "add"})),
		"a twin without Name": e2e.ErrorOf(rt.Load("no name", nil, sim.Kernel{Run: func(*sim.Exec) {}})),
	} {
		expect.Error(t, err, core.ErrInvalidRequest, name)
	}
	m, err := rt.Load("job.test", nil, e2e.AddTwin)
	e2e.Succeed(t, "loading", err)
	if _, err := m.Kernel("subtract"); !errors.As(err, &d) || d.Code != driver.NotFound {
		t.Errorf("a kernel that there is not: %v", err)
	}
}

// Twins that were registered by hand stay.
func TestLoadingWithoutTwinsKeepsThoseThatAreRegistered(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	e2e.Succeed(t, "registering", e2e.Simulated(rt).RegisterModule("by hand", e2e.AddTwin))
	m, err := rt.Load("by hand", nil)
	e2e.Succeed(t, "loading", err)
	_, err = m.Kernel("add")
	e2e.Succeed(t, "looking it up", err)
	_, err = cuda.LoadModule(nil, driver.Image{Name: "x"})
	expect.Error(t, err, core.ErrInvalidRequest, "without a driver")
}

func TestOtherTwinsOfALoadedNameAreRefused(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	twin := func(v byte) sim.Kernel { // the same code, and other functions
		return sim.Kernel{Name: "set", Declare: func(a sim.Args) []sim.Range { return []sim.Range{sim.Writes(a.Ptr(0), 1)} }, Run: func(x *sim.Exec) { x.Write(x.Args().Ptr(0), 1)[0] = v }}
	}
	one, two := twin(1), twin(2)
	m, err := rt.Load("code", nil, one)
	e2e.Succeed(t, "loading", err)
	_, err = rt.Load("code", nil, one)
	e2e.Succeed(t, "loading the same", err)
	_, err = rt.Load("code", nil)
	e2e.Succeed(t, "loading what is there", err)
	for name, twins := range map[string][]sim.Kernel{"another": {two}, "one more": {one, e2e.AddTwin}, "without Declare": {{Name: one.Name, Run: one.Run}}} {
		for _, ptx := range [][]byte{nil, []byte("ptx")} {
			expect.ErrorOf(rt.Load("code", ptx, twins...))(t, core.ErrInvalidRequest, name)
		}
	}
	got, err := m.Kernel("set")
	e2e.Succeed(t, "looking it up", err)
	var bytes []byte
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
		s, err := fencepost.Upload(j, []byte{0})
		if err == nil {
			err = j.Launch(got, cuda.Blocks1D(1, 1), fencepost.Writes(s))
		}
		if err == nil {
			bytes, err = fencepost.Download(j, s)
		}
		return err
	}))
	if bytes[0] != 1 {
		t.Errorf("a twin of number %d ran", bytes[0])
	}
	alone, err := rt.Load("alone", nil, one)
	e2e.Succeed(t, "loading", err)
	e2e.Succeed(t, "unloading", alone.Unload())
	_, err = rt.Load("alone", nil, two)
	e2e.Succeed(t, "loading other code when the first is unloaded", err)
}
