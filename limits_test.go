package fencepost_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/limits"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

const mib = 1 << 20

// asGPU is a simulated device that says that it is a GPU.
type asGPU struct {
	driver.Driver
	lacks *atomic.Uint64 // of its memory, in what it tells; nil for none
}

func (d asGPU) Unwrap() driver.Driver { return d.Driver }

func (d asGPU) Properties() (driver.Properties, error) {
	p, err := d.Driver.Properties()
	p.DriverVersion, p.PCIBusID = 13040, "0000:19:00.0"
	return p, err
}

func (d asGPU) MemInfo() (free, total uint64, err error) {
	free, total, err = d.Driver.MemInfo()
	if d.lacks != nil {
		free, total = free-d.lacks.Load(), total-d.lacks.Load()
	}
	return free, total, err
}

// container is a control group with a limit on the memory of that GPU.
type container struct {
	t      *testing.T
	device *sim.Device
	root   string
}

// contain has runtimes that are opened from now on find themselves in a control group without limits.
func contain(t *testing.T, deviceBytes uint64) *container {
	device := must.Get(sim.Open(sim.Config{Bytes: deviceBytes}))(t)
	t.Cleanup(func() { _ = device.Close() })
	c := &container{t, device, t.TempDir()}
	for name, text := range map[string]string{"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/dmem.max": "", "sys/fs/cgroup/pod/dmem.current": ""} {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(c.root, name)), 0o755))
		c.write(name, text)
	}
	before := limits.Root
	limits.Root = c.root
	t.Cleanup(func() { limits.Root = before })
	return c
}

func (c *container) write(name, text string) {
	c.t.Helper()
	name = filepath.Join(c.root, name)
	must.Do(c.t, os.WriteFile(name+".new", []byte(text), 0o600))
	must.Do(c.t, os.Rename(name+".new", name))
}

// limit sets the group's limit.
func (c *container) limit(bytes string) {
	c.write("sys/fs/cgroup/pod/dmem.max", "nvidia/0000:19:00.0/vidmem "+bytes+"\n")
}

func (c *container) open(cfg fencepost.Config) *fencepost.Runtime {
	cfg.Driver = asGPU{Driver: c.device}
	return e2e.Open(c.t, cfg)
}

func TestTheBudgetIsNeverAboveALimitOfOthers(t *testing.T) {
	c := contain(t, 1024*mib)
	c.limit("536870912")
	for _, f := range []struct{ budget, want uint64 }{
		{0, 496 * mib},         // the limit, less a 32nd
		{800 * mib, 496 * mib}, // more than is allowed
		{100 * mib, 100 * mib},
	} {
		rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Driver: asGPU{Driver: c.device}, Budget: f.budget}))(t)
		if got := rt.Stats().Limit; got != f.want {
			t.Errorf("with a budget of %d MiB the limit is %d MiB, want %d", f.budget/mib, got/mib, f.want/mib)
		}
		if all := rt.MemoryLimits(); len(all) != 1 || all[0].Source != "cgroup" || all[0].Name != "/sys/fs/cgroup/pod/dmem.max" || all[0].Bytes != 512*mib || all[0].Allowed != 496*mib {
			t.Errorf("the limits are %+v", all)
		}
		must.Get(rt.Close(t.Context()))(t)
	}
	c.limit("max")
	rt := c.open(fencepost.Config{})
	if got := rt.Stats().Limit; got != 992*mib || rt.MemoryLimits() != nil {
		t.Errorf("without limits the budget is %d MiB, and the limits are %+v", got/mib, rt.MemoryLimits())
	}
}

// A limit that is lowered holds within a second or so, is named where it refuses, and what waits goes
// on when it is raised.
func TestALimitThatIsChangedLaterCounts(t *testing.T) {
	c := contain(t, 1024*mib)
	c.limit("max")
	rt := c.open(fencepost.Config{})
	c.limit("134217728")
	becomes(t, rt, 124*mib)
	err := rt.Do(t.Context(), "large", func(*fencepost.Job) error { return nil }, fencepost.Reserve(200*mib, time.Hour))
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	if !ok || short.LimitedBy != "/sys/fs/cgroup/pod/dmem.max" || !strings.Contains(err.Error(), short.LimitedBy) {
		t.Errorf("refused as %v", err)
	}
	claim := must.Get(rt.Reserve(t.Context(), 100*mib, "first"))(t)
	waited := make(chan error, 1)
	go func() {
		waited <- rt.Do(t.Context(), "waits", func(*fencepost.Job) error { return nil }, fencepost.Reserve(100*mib, time.Hour))
	}()
	for until := time.Now().Add(20 * time.Second); rt.Waiting() == 0 && time.Now().Before(until); time.Sleep(time.Millisecond) {
	}
	c.limit("268435456")
	select {
	case err := <-waited:
		must.Do(t, err)
	case <-time.After(20 * time.Second):
		t.Error("the job waits although the limit was raised")
	}
	must.Do(t, rt.ReleaseClaim(context.Background(), claim.ID))
	c.write("sys/fs/cgroup/pod/dmem.max", "garbage \x00")
	becomes(t, rt, 992*mib)
}

// becomes waits until the budget's limit is so much.
func becomes(t *testing.T, rt *fencepost.Runtime, limit uint64) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); rt.Stats().Limit != limit; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the limit is %d MiB, want %d", rt.Stats().Limit/mib, limit/mib)
		}
	}
}

// Used counts what others of the group have, and not twice what the runtime holds.
func TestWhatOthersOfTheGroupHaveIsNotAllowed(t *testing.T) {
	c := contain(t, 1024*mib)
	c.limit("536870912")
	rt := c.open(fencepost.Config{Resource: fencepost.Direct, Guard: fencepost.GuardOff})
	b := must.Get(rt.Allocate(t.Context(), core.Request{Bytes: 64 * mib}))(t)
	c.write("sys/fs/cgroup/pod/dmem.current", "nvidia/0000:19:00.0/vidmem 201326592\n") // 128 MiB of them are of others
	becomes(t, rt, 368*mib)
	c.limit("100663296") // lowered below what is used
	if h := e2e.Becomes(t, rt, names.HealthDegraded, names.HealthMemoryLimit); !strings.Contains(h.Reason, "/sys/fs/cgroup/pod/dmem.max") {
		t.Errorf("the reason is %s", h.Reason)
	}
	becomes(t, rt, 64*mib) // which it keeps
	must.Get(rt.Deallocate(t.Context(), b.ID))(t)
}

// The driver tells a limit on the process's own group as the device's total.
func TestTheDefaultFollowsTheTotalAndNotWhatIsFree(t *testing.T) {
	c := contain(t, 1024*mib)
	var lacks atomic.Uint64
	lacks.Store(512 * mib)
	rt := e2e.Open(t, fencepost.Config{Driver: asGPU{c.device, &lacks}})
	lacks.Store(256 * mib)
	becomes(t, rt, (496+256)*mib)
	lacks.Store(768 * mib)
	becomes(t, rt, (496-256)*mib)
	foreign := must.Get(c.device.MemAlloc(64 * mib))(t)
	lacks.Store(512 * mib)
	becomes(t, rt, 496*mib)
	must.Do(t, c.device.MemFree(foreign))
}

// What a user sets is not changed by what the device has.
func TestABudgetThatWasSetDoesNotFollowTheDevice(t *testing.T) {
	c := contain(t, 1024*mib)
	rt := c.open(fencepost.Config{Budget: 2048 * mib})
	if got := rt.Stats().Limit; got != 2048*mib {
		t.Errorf("a budget that was given is %d MiB", got/mib)
	}
	rt.Budget().SetLimit(700 * mib)
	if got := rt.Stats().Limit; got != 700*mib {
		t.Errorf("a limit that was set is %d MiB", got/mib)
	}
	rt.Budget().SetLimit(0)
	becomes(t, rt, 992*mib)
}

// A reading of the device that fails makes Open fail, or leaves the limit: none is lost.
func TestNoLimitIsLostWhereTheDeviceCannotBeRead(t *testing.T) {
	c := contain(t, 1024*mib)
	c.limit("536870912")
	faults := drivertest.NewFaults(c.device)
	opened := 0
	for k := uint64(1); ; k++ {
		faults.FailMethod(drivertest.MemInfo, k, driver.InvalidHandle)
		rt, err := fencepost.Open(t.Context(), fencepost.Config{Driver: asGPU{Driver: faults}, Async: cuda.AsyncConfig{ReapInterval: -1}})
		due := faults.Failed(drivertest.MemInfo) == k // each run before this one met its fault
		faults.Clear()
		if err == nil {
			opened++
			if got := rt.Stats().Limit; got != 496*mib {
				t.Errorf("call %d failed: the limit is %d MiB", k, got/mib)
			}
			must.Get(rt.Close(t.Context()))(t)
		}
		if !due {
			break
		}
	}
	if opened < 2 {
		t.Errorf("%d runtimes were opened, want one with a reading that failed, and one without", opened)
	}
}
