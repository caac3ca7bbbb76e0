package cuda

import (
	"context"
	"errors"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Kernel is one entry point of a module. It is safe for concurrent use.
type Kernel struct {
	name string
	// launch is what its launches are called: a template's name can be longer
	// than a launch's.
	launch   string
	drv      driver.Driver
	function driver.Function
}

// Name is the kernel's.
func (k *Kernel) Name() string { return k.name }

// Grid is the shape of a launch.
type Grid struct {
	Grid, Block driver.Dim
	// SharedBytes is dynamic shared memory a block.
	SharedBytes uint32
}

// Blocks1D is the shape for n threads in blocks of size.
func Blocks1D(n, size int) Grid {
	return Grid{Grid: driver.Dim{X: uint32((n + size - 1) / size)}, Block: driver.Dim{X: uint32(size)}}
}

// Launch enqueues the kernel on the lease's stream, fenced for uses: every
// block that the arguments reach. It returns when the launch is enqueued. A
// launch that the driver refuses is aborted. The arguments that are pointers
// (see [driver.Ptr]) are named to the runtime, whose guard finds those that
// lie in no block of uses. A nil kernel, runtime or lease is a
// [core.InvalidRequestError].
func (k *Kernel) Launch(ctx context.Context, rt core.AnyRuntime, on *Lease, grid Grid, uses []core.Use, args ...driver.Arg) error {
	if k == nil {
		return missingHandle("Kernel.Launch", "kernel")
	}
	r, err := needRuntime("Kernel.Launch", rt)
	if err != nil {
		return err
	}
	if err := needLease("Kernel.Launch", on); err != nil {
		return err
	}
	list := pointerLists.Get().(*[]uint64)
	defer pointerLists.Put(list)
	*list = (*list)[:0]
	for i := range args {
		if args[i].Pointer {
			*list = append(*list, args[i].Bits)
		}
	}
	req := core.UseRequest{Stream: on.ID(), Launch: k.launch, Uses: uses, Pointers: *list}
	return r.LaunchWith(ctx, req, func(context.Context) error {
		return refusedUnlessSticky(k.Enqueue(on.Handle(), grid, args...))
	})
}

// pointerLists are for the pointers among the arguments of a launch.
var pointerLists = sync.Pool{New: func() any { return new([]uint64) }}

// Enqueue enqueues the kernel raw, for callers that fence it themselves. A
// launch function that enqueues nothing else may mark its error with
// [core.NotEnqueued] unless it is sticky; one that has enqueued before must not.
func (k *Kernel) Enqueue(stream driver.Stream, grid Grid, args ...driver.Arg) error {
	if k == nil {
		return missingHandle("Kernel.Enqueue", "kernel")
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
