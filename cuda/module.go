package cuda

import (
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Module is loaded device code. It is safe for concurrent use.
type Module struct {
	mu     sync.Mutex
	loaded *loadedModule // nil after Unload
}

// loadedModule is device code in a context, where it is loaded once: loading
// compiles it, and takes device memory.
type loadedModule struct {
	key    moduleKey
	handle driver.Module
	users  int
}

type moduleKey struct {
	drv       driver.Driver
	name, ptx string
}

var (
	modulesMu sync.Mutex
	modules   = map[moduleKey]*loadedModule{}
)

// LoadModule loads device code, or shares what is loaded on drv already. It
// may block. A nil driver is a [core.InvalidRequestError].
func LoadModule(drv driver.Driver, image driver.Image) (*Module, error) {
	if err := needDriver("LoadModule", drv); err != nil {
		return nil, err
	}
	modulesMu.Lock()
	defer modulesMu.Unlock()
	key := moduleKey{drv: drv, name: image.Name, ptx: string(image.PTX)}
	l := modules[key]
	if l == nil {
		handle, err := drv.ModuleLoad(image)
		if err != nil {
			return nil, err
		}
		l = &loadedModule{key: key, handle: handle}
		modules[key] = l
	}
	l.users++
	return &Module{loaded: l}, nil
}

// Kernel looks a kernel up by its name. A module that was unloaded has none:
// the error matches [core.ErrClosed].
func (m *Module) Kernel(name string) (*Kernel, error) {
	if m == nil {
		return nil, missingHandle("Kernel", "module")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loaded == nil {
		return nil, errUnloaded("Kernel")
	}
	drv := m.loaded.key.drv
	f, err := drv.ModuleFunction(m.loaded.handle, name)
	if err != nil {
		return nil, err
	}
	return &Kernel{name: name, launch: core.BoundName(name), drv: drv, function: f}, nil
}

// Unload gives the code up, and unloads it with the last of those who loaded
// it; its kernels must not be running. A second Unload is an error that
// matches [core.ErrClosed]; after a driver's error it may be called again,
// unless the device is lost.
func (m *Module) Unload() error {
	if m == nil {
		return missingHandle("Unload", "module")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loaded == nil {
		return errUnloaded("Unload")
	}
	modulesMu.Lock()
	defer modulesMu.Unlock()
	l := m.loaded
	var err error
	if l.users == 1 {
		err = l.key.drv.ModuleUnload(l.handle)
		if err != nil && !errors.Is(err, core.ErrSticky) {
			return err
		}
		delete(modules, l.key) // of a lost device the code is gone with the context
	}
	l.users--
	m.loaded = nil
	return err
}

func errUnloaded(op string) error { return fmt.Errorf("%s: the module is %w", op, core.ErrClosed) }
