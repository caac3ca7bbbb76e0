package cuda

import (
	"fmt"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// Origin says whose memory a column is.
type Origin uint8

// The origins of columns.
const (
	// Owned columns are slices of a memory manager.
	Owned Origin = iota + 1
	// DLPack columns were imported from a DLPack tensor.
	DLPack
	// ArrowDevice columns were imported through Arrow's C device interface.
	ArrowDevice
)

// String names the origin.
func (o Origin) String() string {
	switch o {
	case Owned:
		return "owned"
	case DLPack:
		return "dlpack"
	case ArrowDevice:
		return "arrow-device"
	}
	return fmt.Sprintf("origin(%d)", uint8(o))
}

// Column is device memory of one of several origins, untyped. External
// columns have no identity in the runtime: strict recorders refuse them and
// permissive ones skip them, so their user synchronises with the producer. It
// is the original's CudaColumn.
type Column struct {
	origin  Origin
	tracked core.Tracked
	ptr     uint64
	bytes   uint64
	release func()
	done    atomic.Bool
}

var _ core.Tracked = (*Column)(nil)

// OwnedColumn makes a column of a slice; the slice stays the caller's to free.
func OwnedColumn[T Element](s *Slice[T]) *Column {
	return &Column{origin: Owned, tracked: s, ptr: s.Ptr(), bytes: s.Bytes()}
}

// External is memory of another framework.
type External struct {
	// Ptr and Bytes are where it lies on the device.
	Ptr, Bytes uint64
	// Release tells the producer that the memory is not needed any more: the
	// deleter of a DLManagedTensor, the release of an ArrowArray. May be nil.
	Release func()
}

// DLPackColumn makes a column of an imported DLPack tensor.
func DLPackColumn(e External) *Column {
	return &Column{origin: DLPack, ptr: e.Ptr, bytes: e.Bytes, release: e.Release}
}

// ArrowDeviceColumn makes a column of an imported Arrow device array.
func ArrowDeviceColumn(e External) *Column {
	return &Column{origin: ArrowDevice, ptr: e.Ptr, bytes: e.Bytes, release: e.Release}
}

// Origin says whose memory it is.
func (c *Column) Origin() Origin { return c.origin }

// IsExternal reports whether it is another framework's.
func (c *Column) IsExternal() bool { return c.origin != Owned }

// Ptr is the device address, Bytes the size.
func (c *Column) Ptr() uint64 { return c.ptr }

// Bytes is the size in bytes.
func (c *Column) Bytes() uint64 { return c.bytes }

// Tracking says what the runtime knows of the memory.
func (c *Column) Tracking() core.Tracking {
	if c.origin == Owned {
		return c.tracked.Tracking()
	}
	return core.Tracking{Kind: core.TrackedExternal}
}

// Release calls the producer's release, once, of an external column. The
// caller makes sure that the device is done with it.
func (c *Column) Release() {
	if c.release != nil && c.done.CompareAndSwap(false, true) {
		c.release()
	}
}
