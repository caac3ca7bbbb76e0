package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
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
	image.Name = names.Bound(image.Name)
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
	return &Kernel{launch: names.Bound(name), drv: drv, function: f}, nil
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

// Kernel is one entry point of a module. It is safe for concurrent use.
type Kernel struct {
	// launch is what its launches are called: a template's name can be longer
	// than a launch's.
	launch   string
	drv      driver.Driver
	function driver.Function
}

// Grid is the shape of a launch.
type Grid struct {
	Grid, Block driver.Dim
	// SharedBytes is dynamic shared memory a block.
	SharedBytes uint32

	bad string // why there is no such shape
}

// Blocks1D is the shape for n threads, or a few more, in blocks of size; no threads are one block.
// CUDA takes blocks of 1 to 1024 threads: a launch of another size, or of a negative number of
// threads, is a [core.InvalidRequestError].
func Blocks1D(n, size int) Grid {
	blocks := 0
	switch {
	case n < 0:
		return Grid{bad: fmt.Sprintf("%d threads: ask for none or more", n)}
	case size < 1 || size > math.MaxInt32:
		return Grid{bad: fmt.Sprintf("blocks of %d threads: CUDA takes 1 to 1024, and 256 is a good size", size)}
	case n > 0:
		blocks = (n-1)/size + 1
	}
	if blocks > math.MaxInt32 {
		return Grid{bad: fmt.Sprintf("%d blocks of %d threads: CUDA takes %d blocks in a row; let a thread do more than one element", blocks, size, math.MaxInt32)}
	}
	return Grid{Grid: driver.Dim{X: uint32(blocks)}, Block: driver.Dim{X: uint32(size)}}
}

// check refuses a shape that no CUDA device takes.
func (g *Grid) check(op string) error {
	if bad := cmp.Or(g.bad, driver.CheckSizes(g.Grid, g.Block)); bad != "" {
		return &core.InvalidRequestError{Op: op, Field: "grid", Reason: bad}
	}
	return nil
}

// Launch enqueues the kernel on the lease's stream, fenced for uses: every
// block that the arguments reach. It returns when the launch is enqueued. A
// launch that the driver refuses is aborted, and one of sizes that CUDA does not take refused
// before. The arguments that are pointers (see [driver.Ptr]) are named to the runtime, whose guard
// finds those that lie in no block of uses, and suspects other arguments of 64 bits that do. A nil
// kernel, runtime or lease, and a grid that CUDA does not take, are a [core.InvalidRequestError].
func (k *Kernel) Launch(ctx context.Context, rt core.AnyRuntime, on *Lease, grid Grid, uses []core.Use, args ...driver.Arg) error {
	if k == nil {
		return missingHandle("Kernel.Launch", "kernel")
	}
	r, err := refuse.NoRuntime("Kernel.Launch", rt)
	if err != nil {
		return err
	}
	if err := cmp.Or(needLease("Kernel.Launch", on), grid.check("Kernel.Launch")); err != nil {
		return err
	}
	lists := wordLists.Get().(*wordList)
	defer wordLists.Put(lists)
	lists.pointers, lists.others = lists.pointers[:0], lists.others[:0]
	for i := range args {
		switch a := &args[i]; {
		case a.Pointer:
			lists.pointers = append(lists.pointers, a.Bits)
		case a.Size == 8:
			lists.others = append(lists.others, a.Bits)
		}
	}
	req := core.UseRequest{Stream: on.ID(), Launch: k.launch, Uses: uses, Pointers: lists.pointers, Words: lists.others}
	return r.LaunchWith(ctx, req, func(context.Context) error {
		return refusedUnlessSticky(k.Enqueue(on.Handle(), grid, args...))
	})
}

// wordLists are for the arguments of a launch that are, or may be, addresses.
var wordLists = sync.Pool{New: func() any { return new(wordList) }}

type wordList struct{ pointers, others []uint64 }

// Enqueue enqueues the kernel raw, for callers that fence it themselves. A
// launch function that enqueues nothing else may mark its error with
// [core.NotEnqueued] unless it is sticky; one that has enqueued before must not.
func (k *Kernel) Enqueue(stream driver.Stream, grid Grid, args ...driver.Arg) error {
	if k == nil {
		return missingHandle("Kernel.Enqueue", "kernel")
	}
	if err := grid.check("Kernel.Enqueue"); err != nil {
		return err
	}
	return k.drv.Launch(&driver.Launch{Function: k.function, Grid: grid.Grid, Block: grid.Block,
		SharedBytes: grid.SharedBytes, Stream: stream, Args: args})
}

// refusedUnlessSticky marks the driver's refusal of the only work of a launch:
// just a sticky error may be that of work which had been enqueued.
func refusedUnlessSticky(err error) error {
	if errors.Is(err, core.ErrSticky) {
		return err
	}
	return core.NotEnqueued(err)
}
