package fencepost

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
)

// code is the device code that a runtime has loaded for its callers.
type code struct {
	mu      sync.Mutex
	modules []*cuda.Module
	closed  bool
}

// Load loads device code: image is PTX, as text, or a cubin or fatbin for the
// GPU that is there. The simulated device cannot run it, and runs the twins in its
// place, the same kernels in Go; a GPU does not look at them. The name stands for
// the code in messages, and on the simulated device for the twins: kernels of
// different code have different names.
//
// The code is unloaded by Close, or before by [cuda.Module.Unload], when none of
// its kernels runs. What is loaded already is shared. Errors are those of the
// driver, with what its compiler said; [core.InvalidRequestError] for a name or
// twin that is missing, and for no code on a GPU; and one that matches
// [core.ErrClosed]. It may block, for seconds where the driver compiles PTX.
func (r *Runtime) Load(name string, image []byte, twins ...sim.Kernel) (*cuda.Module, error) {
	if name == "" {
		return nil, &core.InvalidRequestError{Op: "Load", Field: "name", Reason: "empty: give the code a name of its own"}
	}
	c := &r.code
	c.mu.Lock() // what is registered must be what is loaded
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("Load refused: the runtime is %w", core.ErrClosed)
	}
	if device, ok := driver.Unwrap(r.driver).(*sim.Device); ok && len(twins) > 0 {
		if err := device.RegisterModule(name, twins...); err != nil {
			return nil, err
		}
	}
	m, err := cuda.LoadModule(r.driver, driver.Image{Name: name, PTX: image})
	r.ReportSticky("Load", err)
	if err != nil {
		return nil, err
	}
	c.modules = append(c.modules, m)
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
		if err := twice(m.Unload); err != nil && !errors.Is(err, core.ErrClosed) {
			errs = append(errs, err)
		}
	}
	c.modules = nil
	return errors.Join(errs...)
}

// openCode comes before the streams, and so is undone after them: code that runs
// must not be unloaded.
func (r *Runtime) openCode(Config) error {
	r.onClose(func(ctx context.Context) error { return deadline.Within(ctx, r.code.unload) })
	return nil
}
