package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
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
	return nil
}

// findDriver returns the device that cfg asks for, and whether it is the
// runtime's to close.
func (r *Runtime) findDriver(cfg Config) (driver.Driver, bool, error) {
	if cfg.Driver != nil {
		r.device.Reason = "given as Config.Driver"
		return cfg.Driver, false, nil
	}
	if cfg.Device == Sim {
		r.device.Reason = "asked for"
		drv, err := r.openSim(cfg)
		return drv, true, err
	}
	drv, err := openGPU(cfg)
	if err == nil {
		r.device.Reason = "found"
		return drv, true, nil
	}
	absent, ok := errors.AsType[*absentError](err)
	if cfg.Device == CUDA || !ok {
		return nil, false, err
	}
	r.device.Reason = absent.reason
	drv, err = r.openSim(cfg)
	return drv, true, err
}

func (r *Runtime) openSim(cfg Config) (driver.Driver, error) {
	simulated := cfg.Sim
	simulated.Ordinal, simulated.OnFinding = cfg.Ordinal, r.reporter.FromOracle
	device, err := sim.Open(simulated)
	if e, ok := errors.AsType[*core.InvalidRequestError](err); ok && (e.Field == "Bytes" || e.Field == "UUID") {
		return nil, invalid("Sim."+e.Field, e.Reason)
	}
	if err != nil {
		return nil, err
	}
	return device, nil
}

// DeviceChoice says which device a runtime is on, and why.
type DeviceChoice struct {
	// Kind is CUDA or Sim.
	Kind    string `json:"kind"`
	Ordinal int    `json:"ordinal"`
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
func (r *Runtime) DeviceChoice() DeviceChoice { return r.device }
