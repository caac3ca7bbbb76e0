package fencepost_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// nowhere is an address that no simulated device has.
const nowhere = 0xdead_0000

// mapping is what hunt:unmap gives a small block.
const mapping = sim.Granule

// countTwin is count(out, at), which adds one to the number at at.
var countTwin = sim.Kernel{
	Name:    "count",
	Declare: func(a sim.Args) []sim.Range { return []sim.Range{sim.ReadWrites(a.Ptr(1), 8)} },
	Run:     func(x *sim.Exec) { sim.ReadWriteSlice[uint64](x, x.Args().Ptr(1), 1)[0]++ },
}

// plant is a runtime on a simulated device, with a launch in flight beside what a test does.
type plant struct {
	*fencepost.Runtime
	found chan core.Finding
	on    *cuda.Lease
	// out, victim and last are on it, elsewhere is on another stream. Behind last is nothing.
	out, victim, elsewhere, last core.Block
	add, count                   *cuda.Kernel
}

func openPlant(t *testing.T, cfg fencepost.Config) *plant {
	t.Helper()
	found := make(chan core.Finding, 16)
	cfg.Device, cfg.OnFinding = fencepost.Sim, func(f core.Finding) { found <- f }
	cfg.Pool.ReapInterval, cfg.Async.ReapInterval = -1, -1 // a block is told of when the test's own call has released it
	p := &plant{Runtime: e2e.OpenDirty(t, cfg), found: found}
	m, err := p.Load("plant", nil, e2e.AddTwin, countTwin)
	must.Do(t, err)
	p.add, p.count = must.Get(m.Kernel("add"))(t), must.Get(m.Kernel("count"))(t)
	honest := e2e.Lease(t, p.Runtime, "honest")
	p.on = e2e.Lease(t, p.Runtime, "planted")
	p.out, p.victim = e2e.Allocate(t, p.Runtime, 4096, p.on.ID(), "out"), e2e.Allocate(t, p.Runtime, 4096, p.on.ID(), "victim")
	beside := e2e.Allocate(t, p.Runtime, 4096, honest.ID(), "beside")
	p.elsewhere = e2e.Allocate(t, p.Runtime, 4096, e2e.Lease(t, p.Runtime, "elsewhere").ID(), "elsewhere")
	p.last = e2e.Allocate(t, p.Runtime, 4096, p.on.ID(), "last")
	e2e.Hold(t, p.Runtime, honest.Handle())
	must.Do(t, p.launch(honest, beside, p.add, driver.Ptr(beside.ID.Ptr), driver.Ptr(beside.ID.Ptr), driver.U32(64), driver.U32(1)))
	return p
}

// launch launches a kernel that declares one block.
func (p *plant) launch(on *cuda.Lease, b core.Block, k *cuda.Kernel, args ...driver.Arg) error {
	name := "planted"
	if on != p.on {
		name = "honest"
	}
	return p.LaunchNamed(context.Background(), name, on.ID(), []core.Use{{Block: b.ID, Access: core.ReadWrite}}, func(context.Context) error {
		return k.Enqueue(on.Handle(), cuda.Blocks1D(64, 64), args...)
	})
}

// free frees the victim until it is unmapped.
func (p *plant) free(t *testing.T) {
	t.Helper()
	e2e.Free(t, p.Runtime, p.victim)
	for p.Core().State(p.victim.ID) != core.Freed {
		must.Do(t, p.ReapPending(t.Context()))
		time.Sleep(time.Millisecond)
	}
}

// faultOf is the finding of the fault, and all that came before it.
func (p *plant) faultOf(t *testing.T) (fault core.Finding, before []core.Finding) {
	t.Helper()
	for {
		select {
		case f := <-p.found:
			if f.Kind == names.FindingStickyError || f.Kind == names.FindingIllegalAccess {
				return f, before
			}
			before = append(before, f)
		case <-time.After(time.Minute):
			t.Fatalf("there is no finding but %v", before)
		}
	}
}

// A fault of a kernel on the simulated device is named as on a GPU: by the dump, beside what the oracle saw.
func TestAFaultOfASimulatedKernelIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		plant  func(p *plant) (at uint64, err error)
		access core.Access
		oracle core.FindingKind
		says   string
	}{
		"a late read": {func(p *plant) (uint64, error) {
			at := p.victim.ID.Ptr + 64
			return at, p.launch(p.on, p.out, p.add, driver.Ptr(p.out.ID.Ptr), driver.Ptr(at), driver.U32(64), driver.U32(1))
		}, core.Read, names.FindingUseAfterFreeRead, `kernel "add" of launch`},
		"a late write": {func(p *plant) (uint64, error) {
			at := p.victim.ID.Ptr + 8
			return at, p.launch(p.on, p.out, p.add, driver.Ptr(at), driver.Ptr(p.out.ID.Ptr), driver.U32(1), driver.U32(1))
		}, core.Write, names.FindingUseAfterFreeWrite, "wrote 4 bytes"},
		"a late atomic": {func(p *plant) (uint64, error) {
			at := p.victim.ID.Ptr
			return at, p.launch(p.on, p.out, p.count, driver.Ptr(p.out.ID.Ptr), driver.Ptr(at))
		}, core.ReadWrite, names.FindingUseAfterFreeWrite, "read and wrote 8 bytes"},
		"a write over the end": {func(p *plant) (uint64, error) {
			end := p.last.ID.Ptr&^(mapping-1) + mapping
			return end, p.launch(p.on, p.last, p.add, driver.Ptr(p.last.ID.Ptr), driver.Ptr(p.last.ID.Ptr), driver.U32(uint32(mapping/4+16)), driver.U32(1))
		}, core.Write, names.FindingOutOfBoundsWrite, "behind the end of block \"last\""},
		"where memory never was": {func(p *plant) (uint64, error) {
			return nowhere, p.launch(p.on, p.out, p.add, driver.Ptr(p.out.ID.Ptr), driver.Ptr(nowhere), driver.U32(64), driver.U32(1))
		}, core.Read, "", "where the runtime never had memory"},
	} {
		t.Run(name, func(t *testing.T) {
			p := openPlant(t, fencepost.Config{Guard: "hunt:unmap", Faults: fencepost.FaultsNamed})
			if got := p.GuardStatus().Faults; got != "armed" {
				t.Skip("faults are ", got)
			}
			p.free(t)
			release := e2e.Hold(t, p.Runtime, p.on.Handle()) // or the fault may come before the launch has ended
			at, err := c.plant(p)
			must.Do(t, err)
			release()
			if err := p.Streams().Synchronize(t.Context(), p.on.ID()); !errors.Is(err, core.ErrSticky) {
				t.Errorf("the stream is said to be done: %v", err)
			}
			f, before := p.faultOf(t)
			if f.Kind != names.FindingIllegalAccess || len(f.Suspects) != 1 || f.Suspects[0].Launch != "planted" || f.Suspects[0].Access != c.access {
				t.Errorf("it is %s by %v", f.Kind, f.Suspects)
			}
			if !strings.Contains(f.Text, c.says) || !strings.Contains(f.Text, "block [0 0 0], thread [0 0 0]") {
				t.Errorf("it says %s", f.Text)
			}
			t.Log(f.Text)
			if c.oracle == "" {
				if f.Victim.ID.Generation != 0 || len(before) != 0 {
					t.Errorf("it is of %v; before: %v", f.Victim, before)
				}
				return
			}
			victim, freed := p.victim, true
			if c.oracle == names.FindingOutOfBoundsWrite {
				victim, freed = p.last, false
			}
			if f.Victim.ID != victim.ID || f.Offset != int64(at-victim.ID.Ptr) || len(f.AllocStack) == 0 || (len(f.FreeStack) > 0) != freed {
				t.Errorf("it is of %v at offset %d, freed at %v; accessed was %#x of %v", f.Victim, f.Offset, f.FreeStack, at, victim)
			}
			if len(before) != 1 || before[0].Kind != c.oracle || before[0].Source != "sim-oracle" || before[0].Victim.ID != victim.ID {
				t.Errorf("the oracle says %v", before)
			}
		})
	}
}

// On the simulated device faults are named where that is asked for: its oracle names them elsewhere.
func TestFaultsOfTheSimulatedDeviceAreNamedWhereThatIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		cfg  fencepost.Config
		says string
	}{
		{fencepost.Config{Guard: "ledger"}, "off"},
		{fencepost.Config{Guard: "hunt"}, "off"}, // a reader of a pipe would stop the time of package testing/synctest
		{fencepost.Config{Guard: "off", Faults: fencepost.FaultsNamed}, "armed"},
	} {
		c.cfg.Device = fencepost.Sim
		got := e2e.Open(t, c.cfg).GuardStatus().Faults
		if c.says == "armed" && runtime.GOOS != "linux" { // where there are no named pipes
			c.says = "not armed: "
		}
		if !strings.HasPrefix(got, c.says) {
			t.Errorf("with guard %q and faults %q they are %s, want %s", c.cfg.Guard, c.cfg.Faults, got, c.says)
		}
	}
}

// A copy's fault has no dump.
func TestAFaultOfASimulatedCopyIsNotNamed(t *testing.T) {
	p := openPlant(t, fencepost.Config{Guard: "hunt:unmap", Faults: fencepost.FaultsNamed})
	own, err := p.Driver().StreamCreate()
	must.Do(t, err)
	release := e2e.Hold(t, p.Runtime, own)
	must.Do(t, p.Driver().MemsetAsync(p.victim.ID.Ptr, 1, 64, own))
	p.free(t)
	release()
	for err = nil; err == nil; {
		err = p.Streams().Synchronize(t.Context(), p.on.ID())
	}
	if f, _ := p.faultOf(t); f.Kind != names.FindingStickyError {
		t.Errorf("it is %v", f)
	}
}

// A driver that says of a kernel which faulted that it is done deceives a runtime that does not name faults, and none that does.
func TestNothingIsDoneThatIsNotThoughTheDeviceSaysSo(t *testing.T) {
	for name, wait := range map[string]func(p *plant, launch func(core.Block) error) error{
		"Synchronize": func(p *plant, launch func(core.Block) error) error {
			return errors.Join(launch(p.out), p.Streams().Synchronize(context.Background(), p.on.ID()))
		},
		"Do": func(p *plant, _ func(core.Block) error) error {
			return p.Do(context.Background(), "job", func(j *fencepost.Job) error {
				bad := []driver.Arg{driver.Ptr(p.out.ID.Ptr), driver.Ptr(nowhere), driver.U32(64), driver.U32(1)}
				return p.Launch(context.Background(), j.Stream().ID(), []core.Use{{Block: p.out.ID, Access: core.Write}}, func(context.Context) error {
					return p.add.Enqueue(j.Stream().Handle(), cuda.Blocks1D(64, 64), bad...)
				})
			})
		},
		"reaping": func(p *plant, launch func(core.Block) error) error {
			err := launch(p.elsewhere)
			_, freeErr := p.Deallocate(context.Background(), p.elsewhere.ID)
			for err = errors.Join(err, freeErr); err == nil && p.Core().State(p.elsewhere.ID) != core.Freed; {
				time.Sleep(100 * time.Microsecond)
				err = p.ReapPending(context.Background())
			}
			return err
		},
	} {
		for _, named := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", named", false: ", not named"}[named], func(t *testing.T) {
				cfg := fencepost.Config{Guard: "ledger", Faults: fencepost.FaultsNamed}
				if !named {
					cfg.Faults = fencepost.FaultsOff
					cfg.Sim.CoreDump = filepath.Join(t.TempDir(), "dump")
				}
				p := openPlant(t, cfg)
				if got := p.GuardStatus().Faults; named && got != "armed" {
					t.Skip("faults are ", got)
				}
				end := e2e.Simulated(p.Runtime).FalseSuccess()
				t.Cleanup(end)
				if named { // else it would wait for ever
					time.AfterFunc(20*time.Millisecond, end)
				}
				err := wait(p, func(b core.Block) error {
					return p.launch(p.on, b, p.add, driver.Ptr(p.out.ID.Ptr), driver.Ptr(nowhere), driver.U32(64), driver.U32(1))
				})
				switch {
				case named && !errors.Is(err, core.ErrSticky):
					t.Errorf("it is said to be done: %v", err)
				case !named && err != nil:
					t.Errorf("the device did not lie: %v", err)
				}
				if _, err := os.Stat(cfg.Sim.CoreDump); !named && err == nil {
					t.Error("it was dumped before the end")
				}
			})
		}
	}
}

// A fault is named under a seeded schedule too, in which nothing runs but in calls.
func TestAFaultIsNamedUnderASeededSchedule(t *testing.T) {
	for seed := range uint64(10) {
		p := openPlant(t, fencepost.Config{Guard: "hunt", Faults: fencepost.FaultsNamed, Sim: sim.Config{Schedule: sim.Seeded(seed)}})
		if got := p.GuardStatus().Faults; got != "armed" {
			t.Skip("faults are ", got)
		}
		end := e2e.Simulated(p.Runtime).FalseSuccess()
		must.Do(t, p.launch(p.on, p.out, p.add, driver.Ptr(p.out.ID.Ptr), driver.Ptr(nowhere), driver.U32(64), driver.U32(1)))
		time.AfterFunc(time.Millisecond, end)
		if err := p.Streams().Synchronize(t.Context(), p.on.ID()); !errors.Is(err, core.ErrSticky) {
			t.Errorf("seed %d: the stream is said to be done: %v", seed, err)
		}
		if f, _ := p.faultOf(t); f.Kind != names.FindingIllegalAccess || len(f.Suspects) != 1 || f.Suspects[0].Launch != "planted" {
			t.Errorf("seed %d: it is %v by %v", seed, f, f.Suspects)
		}
	}
}
