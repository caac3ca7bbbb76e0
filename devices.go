package fencepost

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// openDrivers holds the drivers that a runtime is open on: two runtimes on
// one device would each have a budget of their own and together overcommit
// it.
var openDrivers sync.Map

// ErrNoCUDA is matched by the error of Open where a GPU was asked for and
// there is no CUDA driver to use.
var ErrNoCUDA = errors.New("no CUDA driver here")

func (r *Runtime) openDriver(cfg Config) error {
	drv, owned, err := r.findDriver(cfg)
	if err != nil {
		return err
	}
	if owned {
		r.onClose(func(context.Context) error { return drv.Close() })
	}
	if _, taken := openDrivers.LoadOrStore(drv, r); taken {
		return fmt.Errorf("a runtime is open on this device already: share it, so that one budget covers the device: %w", core.ErrInvalidRequest)
	}
	r.onClose(func(context.Context) error { openDrivers.Delete(drv); return nil })
	r.driver = drv
	return nil
}

// findDriver returns the device that cfg asks for, and whether it is the
// runtime's to close.
func (r *Runtime) findDriver(cfg Config) (driver.Driver, bool, error) {
	if cfg.Driver != nil {
		return cfg.Driver, false, nil
	}
	if cfg.Device == CUDA {
		return nil, false, fmt.Errorf("%w: this build has the simulated device only; use Device: \"sim\" (FENCEPOST_DEVICE=sim)", ErrNoCUDA)
	}
	simulated := cfg.Sim
	simulated.Ordinal, simulated.OnFinding = cfg.Ordinal, r.witness.oracle
	device, err := sim.Open(simulated)
	if e, ok := errors.AsType[*core.InvalidRequestError](err); ok && e.Field == "Bytes" {
		return nil, false, invalid("Sim.Bytes", e.Reason)
	}
	if err != nil {
		return nil, false, err
	}
	if err := workload.Register(device); err != nil {
		return nil, false, errors.Join(err, device.Close())
	}
	return device, true, nil
}
