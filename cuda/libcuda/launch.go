package libcuda

import (
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Launch enqueues a kernel. It blocks only if the driver's queue is full.
func (d *Device) Launch(l *driver.Launch) error {
	f := newFrame()
	f.args = [11]uintptr{
		uintptr(l.Function),
		size(l.Grid.X), size(l.Grid.Y), size(l.Grid.Z),
		size(l.Block.X), size(l.Block.Y), size(l.Block.Z),
		uintptr(l.SharedBytes), uintptr(l.Stream), f.parameters(l.Args), 0,
	}
	return d.end(f, d.invoke(cuLaunchKernel, l.Stream, f, 11))
}

// size is one dimension, of which zero counts as 1.
func size(n uint32) uintptr { return uintptr(max(n, 1)) }

// parameters copies a kernel's arguments into the frame and returns the address
// of the array of their addresses: the driver reads as many bytes at each as
// the kernel declares. Their order in memory is that of the bits, little-endian
// on every host that CUDA supports.
func (f *frame) parameters(args []driver.Arg) uintptr {
	if len(args) == 0 {
		return 0
	}
	f.bits, f.params = f.bits[:0], f.params[:0]
	for i := range args {
		f.bits = append(f.bits, args[i].Bits)
	}
	for i := range f.bits {
		f.params = append(f.params, uintptr(unsafe.Pointer(&f.bits[i])))
	}
	return uintptr(unsafe.Pointer(&f.params[0]))
}
