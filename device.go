package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/backends"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// openDevices holds what a runtime is open on: two runtimes on one device
// would each have a budget of their own and together overcommit it.
var openDevices sync.Map

// identity is what makes two drivers the same device: a GPU's UUID, however
// often it was opened, or its ordinal if it has none; and otherwise the driver
// itself, without what is around it, because each simulated device has memory
// of its own.
func identity(drv driver.Driver, props driver.Properties) any {
	if isGPU(props) {
		return cmp.Or(props.UUID, fmt.Sprintf("cuda:%d", drv.Ordinal()))
	}
	return driver.Unwrap(drv)
}

// isGPU goes by the version of the CUDA driver, which only a GPU has.
func isGPU(props driver.Properties) bool { return props.DriverVersion != 0 }

func (r *Runtime) openDriver(cfg Config) error {
	drv, owned, err := r.findDriver(cfg)
	if err != nil {
		return err
	}
	if owned {
		r.onClose(func(ctx context.Context) error { return deadline.Within(ctx, drv.Close) })
	}
	props, err := drv.Properties()
	if err != nil {
		return err
	}
	id := identity(drv, props)
	if _, taken := openDevices.LoadOrStore(id, r); taken {
		return fmt.Errorf("a runtime is open on this device already: share it, so that one budget covers the device: %w", core.ErrInvalidRequest)
	}
	r.onClose(func(context.Context) error { openDevices.Delete(id); return nil })
	r.driver, r.gpu = drv, isGPU(props)
	r.device.Kind, r.device.Ordinal, r.device.Name = Sim, drv.Ordinal(), props.Name
	r.device.UUID, r.device.PCIBusID = props.UUID, props.PCIBusID
	if r.gpu {
		r.device.Kind = CUDA
	}
	// Before the streams, and so undone after them: code that runs must not be unloaded.
	r.onClose(func(ctx context.Context) error { return deadline.Within(ctx, r.code.unload) })
	return nil
}

// findDriver returns the device that cfg asks for, and whether it is the
// runtime's to close.
func (r *Runtime) findDriver(cfg Config) (driver.Driver, bool, error) {
	if cfg.Driver != nil {
		r.device.Reason = "given as Config.Driver"
		return cfg.Driver, false, nil
	}
	r.device.Reason = "asked for"
	if cfg.Device != Sim {
		drv, err := r.openGPU(cfg)
		if err == nil {
			r.device.Reason = "found"
			return drv, true, nil
		}
		absent, ok := errors.AsType[*absentError](err)
		if cfg.Device == CUDA || !ok {
			return nil, false, err
		}
		r.device.Reason = absent.reason
	}
	drv, err := r.openSim(cfg)
	return drv, true, err
}

func (r *Runtime) openSim(cfg Config) (driver.Driver, error) {
	simulated := cfg.Sim
	simulated.Ordinal, simulated.OnFinding = cfg.Ordinal, r.reporter.FromOracle
	r.judged = true
	device, err := r.openArmed(dumping{
		arm:    func(file string) error { simulated.CoreDump = file; return nil },
		disarm: func() error { return nil },
		open:   func() (watched, error) { return sim.Open(simulated) },
	}, cfg)
	if e, ok := errors.AsType[*core.InvalidRequestError](err); ok && (e.Field == "Bytes" || e.Field == "UUID") {
		return nil, invalid("Sim."+e.Field, e.Reason)
	}
	return device, err
}

// DeviceChoice says which device a runtime is on, and why.
type DeviceChoice struct {
	// Kind is CUDA or Sim.
	Kind    DeviceKind `json:"kind"`
	Ordinal int        `json:"ordinal"`
	// Name is the device's, such as "NVIDIA H200".
	Name string `json:"name"`
	// UUID and PCIBusID are those of [driver.Properties]; empty if the driver
	// cannot say.
	UUID     string `json:"uuid,omitempty"`
	PCIBusID string `json:"pci_bus_id,omitempty"`
	// Reason is why it is this device: what was asked for, or, where Auto
	// fell back to the simulated device, what kept it from a GPU.
	Reason string `json:"reason"`
}

// String is "cuda:0 NVIDIA H200", or "sim:0" with the reason.
func (c DeviceChoice) String() string {
	if c.Kind == CUDA {
		return fmt.Sprintf("%s:%d %s", c.Kind, c.Ordinal, c.Name)
	}
	return fmt.Sprintf("%s:%d (%s)", c.Kind, c.Ordinal, c.Reason)
}

// DeviceChoice says which device the runtime is on, and why.
func (r *Runtime) DeviceChoice() DeviceChoice { return r.orNone().device }

// absentError is the error of a machine without a GPU that the configuration
// could use. Auto goes on with the simulated device then. Any other error is
// of a GPU that is there and does not work, and nothing takes its place: a
// service that computes on a simulated device because a driver is broken would
// be found out late.
type absentError struct {
	err    error
	reason string // in short
}

func (e *absentError) Error() string { return e.err.Error() }
func (e *absentError) Unwrap() error { return e.err }

// loadLibrary is replaced by tests.
var loadLibrary = libcuda.Load

// openGPU opens the GPU that cfg names.
func (r *Runtime) openGPU(cfg Config) (driver.Driver, error) {
	lib, err := loadLibrary()
	if err != nil {
		return nil, loadError(err)
	}
	n, err := lib.DeviceCount()
	if err != nil {
		return nil, broken(err)
	}
	if n == 0 {
		err := fmt.Errorf("%w: the driver sees no GPU; see CUDA_VISIBLE_DEVICES", libcuda.ErrNoDriver)
		return nil, &absentError{err, err.Error()}
	}
	if cfg.Ordinal >= n {
		return nil, invalid("Ordinal", fmt.Sprintf("%d: the CUDA driver shows %s; see \"fencepost doctor\" and CUDA_VISIBLE_DEVICES", cfg.Ordinal, countOf(n)))
	}
	if err := serves(lib, cfg); err != nil {
		return nil, err
	}
	device, err := r.openArmed(dumping{
		inHunts: true,
		arm:     func(file string) error { return lib.ArmDump(cfg.Ordinal, file) },
		disarm:  lib.DisarmDump,
		open:    func() (watched, error) { return lib.Open(cfg.Ordinal) },
	}, cfg)
	if err != nil {
		return nil, broken(err)
	}
	return device, nil
}

func countOf(n int) string {
	if n == 1 {
		return "1 device, number 0"
	}
	return fmt.Sprintf("%d devices, 0 to %d", n, n-1)
}

// serves refuses a device that lacks what the backend needs, such as some vGPU profiles and
// embedded boards. It runs before a context is made there.
func serves(lib *libcuda.Library, cfg Config) error {
	if cfg.Resource == Direct {
		return nil
	}
	d, err := lib.Describe(cfg.Ordinal)
	if err != nil {
		return broken(err)
	}
	served := backends.Of(d.MemoryPools, d.VirtualMemory)
	if slices.Contains(served, string(cfg.Resource)) || cfg.Resource == "" && len(served) > 1 {
		return nil
	}
	lacks := map[Backend]string{
		"":    "maps no memory and has no stream-ordered memory pools",
		Async: "has no stream-ordered memory pools",
		Pool:  "maps no memory",
	}[cfg.Resource]
	reason := fmt.Sprintf("device %d (%s) %s", cfg.Ordinal, d.Name, lacks)
	return &absentError{fmt.Errorf("%s: set Resource to %q (FENCEPOST_RESOURCE=%[2]s): %w", reason, served[0],
		errors.ErrUnsupported), reason}
}

// loadError tells a machine without a driver or without a GPU from one whose
// driver is there and cannot be used.
func loadError(err error) error {
	e, ok := errors.AsType[*libcuda.LoadError](err)
	if !ok {
		return broken(err)
	}
	if e.Stage == libcuda.StageOpen || e.Code == driver.NoDevice || e.Code == driver.StubLibrary {
		return &absentError{err, e.Brief()}
	}
	return broken(err)
}

// broken is the error of a GPU that is there and does not work.
func broken(err error) error {
	return fmt.Errorf("the GPU cannot be used: %w; \"fencepost doctor\" says more, and FENCEPOST_DEVICE=sim goes on without it", err)
}

// devices are the process's runtimes, by ordinal. A lookup takes no lock; who opens or
// closes one holds the lock of its ordinal.
var (
	devices     [core.MaxOrdinals]atomic.Pointer[Runtime]
	deviceLocks [core.MaxOrdinals]sync.Mutex
)

// Device returns the process's runtime for an ordinal, and opens it with the
// default configuration and the environment's (but for FENCEPOST_ORDINAL) at
// the first call. Of several concurrent first callers one builds and the others wait for it. A failed
// build is not kept: the next call tries again. After the runtime was closed
// the next call opens a new one.
func Device(ordinal int) (*Runtime, error) {
	if ordinal < 0 || ordinal >= core.MaxOrdinals {
		return nil, &core.InvalidRequestError{Op: "fencepost.Device", Field: "ordinal", Reason: fmt.Sprintf("%d does not lie in 0 to %d", ordinal, core.MaxOrdinals-1)}
	}
	if r := devices[ordinal].Load(); r != nil {
		return r, nil
	}
	lock := &deviceLocks[ordinal]
	lock.Lock()
	defer lock.Unlock()
	if r := devices[ordinal].Load(); r != nil {
		return r, nil
	}
	var cfg Config
	cfg.warnOfUnknown(os.Environ())
	if err := cfg.applyEnvironment(); err != nil {
		return nil, err
	}
	cfg.Ordinal = ordinal // whatever FENCEPOST_ORDINAL says
	r, err := open(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	r.undo = slices.Insert(r.undo, 0, func(context.Context) error { // when all else is undone
		lock.Lock()
		defer lock.Unlock()
		devices[ordinal].Store(nil)
		return nil
	})
	devices[ordinal].Store(r)
	return r, nil
}

// code is the device code that a runtime has loaded for its callers.
type code struct {
	mu      sync.Mutex
	modules []loadedCode
	closed  bool
}

// loadedCode is a module, and on the simulated device what it was loaded from.
type loadedCode struct {
	*cuda.Module
	name  string
	twins []sim.Kernel
}

// refuseOther refuses twins other than those that are loaded under the name: who loaded them shares
// the module, so either of the two would run the other's.
func (c *code) refuseOther(name string, twins []sim.Kernel) error {
	for _, m := range c.modules {
		if m.name != name || len(m.twins) == 0 || slices.EqualFunc(m.twins, twins, sameTwin) {
			continue
		}
		if _, err := m.Kernel(m.twins[0].Name); errors.Is(err, core.ErrClosed) {
			continue // unloaded since
		}
		return &core.InvalidRequestError{Op: "Load", Field: "twins", Reason: fmt.Sprintf("other twins are loaded as %q: give other code another name, unload the module before, or load it once and keep the module", name)}
	}
	return nil
}

// sameTwin reports whether two twins are one: of the same functions. Two closures are not, even if
// they are made in the same place, for what they hold may differ.
func sameTwin(a, b sim.Kernel) bool {
	return a.Name == b.Name && a.Indirect == b.Indirect && sameFunc(a.Run, b.Run) && sameFunc(a.Declare, b.Declare)
}

func sameFunc[F any](a, b F) bool {
	return *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b))
}

// Load loads device code: image is PTX, as text, or a cubin or fatbin for the
// GPU that is there. The simulated device cannot run it, and runs the twins in its
// place, the same kernels in Go; a GPU does not look at them. The name stands for
// the code in messages, and on the simulated device for the twins: kernels of
// different code have different names.
//
// The code is unloaded by Close, or before by [cuda.Module.Unload], when none of
// its kernels runs. What is loaded already is shared: other twins than those that are
// loaded under a name are refused. Errors are those of the
// driver, with what its compiler said; [core.InvalidRequestError] for a name or
// twin that is missing, for other twins, and for no code on a GPU; and one that matches
// [core.ErrClosed]. It may block, for seconds where the driver compiles PTX.
func (r *Runtime) Load(name string, image []byte, twins ...sim.Kernel) (*cuda.Module, error) {
	if name == "" {
		return nil, &core.InvalidRequestError{Op: "Load", Field: "name", Reason: "empty: give the code a name of its own"}
	}
	name, twins = names.Bound(name), slices.Clone(twins)
	for i := range twins {
		twins[i].Name = names.Bound(twins[i].Name) // the device finds it by either form
	}
	c := &r.code
	c.mu.Lock() // what is registered must be what is loaded
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("Load refused: the runtime is %w", core.ErrClosed)
	}
	if device, ok := driver.Unwrap(r.driver).(*sim.Device); ok && len(twins) > 0 {
		if err := c.refuseOther(name, twins); err != nil {
			return nil, err
		}
		if err := device.RegisterModule(name, twins...); err != nil {
			return nil, err
		}
	}
	m, err := cuda.LoadModule(r.driver, driver.Image{Name: name, PTX: image})
	r.core.ReportSticky("Load", err)
	if err != nil {
		return nil, err
	}
	c.modules = append(c.modules, loadedCode{m, name, twins})
	return m, nil
}

// unload unloads what the callers have not unloaded, and refuses what comes
// later.
func (c *code) unload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for _, m := range c.modules {
		if err := usercode.Surely(m.Unload); err != nil && !errors.Is(err, core.ErrClosed) {
			errs = append(errs, err)
		}
	}
	c.modules = nil
	return errors.Join(errs...)
}
