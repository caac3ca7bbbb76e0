package libcuda

import (
	"bytes"
	"errors"
	"strings"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Options of the just-in-time compiler (CUjit_option): where it writes its
// errors, and the size of that buffer in bytes.
const (
	jitErrorLog      = 5
	jitErrorLogBytes = 6
)

// jit is what cuModuleLoadDataEx reads and writes. C's option values are as
// wide as pointers: an address or, for the size, the number itself.
type jit struct {
	options [2]int32
	values  [2]uintptr
	image   []byte
	log     [8 << 10]byte
}

// ModuleLoad loads image.PTX, which may be PTX text or a cubin; the name is
// not used. PTX is compiled for the device, which may take seconds, and blocks.
// What the compiler says about bad PTX is the Detail of the error.
func (d *Device) ModuleLoad(image driver.Image) (driver.Module, error) {
	if len(image.PTX) == 0 {
		return 0, &core.InvalidRequestError{Op: "ModuleLoad", Field: "PTX",
			Reason: "image " + image.Name + " has no code for a CUDA device"}
	}
	j := &jit{options: [2]int32{jitErrorLog, jitErrorLogBytes}, image: image.PTX}
	if !bytes.HasSuffix(j.image, []byte{0}) {
		j.image = append(bytes.Clone(j.image), 0) // text ends where C says
	}
	j.values = [2]uintptr{uintptr(unsafe.Pointer(&j.log)), uintptr(len(j.log))}
	f := newResultFrame()
	f.host(unsafe.Pointer(j))
	f.c.Args[1], f.c.Args[2] = uintptr(unsafe.Pointer(unsafe.SliceData(j.image))), uintptr(len(j.options))
	f.c.Args[3], f.c.Args[4] = uintptr(unsafe.Pointer(&j.options)), uintptr(unsafe.Pointer(&j.values))
	m, err := d.result(cuModuleLoadDataEx, inContext, f)
	return driver.Module(m), withLog(err, j)
}

// withLog adds what the compiler said.
func withLog(err error, j *jit) error {
	var e *core.DriverError
	if text := strings.TrimSpace(untilNUL(j.log[:])); text != "" && errors.As(err, &e) {
		e.Detail = text
	}
	return err
}

// ModuleUnload unloads a module. It may block.
func (d *Device) ModuleUnload(m driver.Module) error {
	return d.do(cuModuleUnload, inContext, uintptr(m))
}

// ModuleFunction looks a kernel up by its name. It may load the kernel's code,
// and block.
func (d *Device) ModuleFunction(m driver.Module, name string) (driver.Function, error) {
	text := append([]byte(name), 0)
	f := newResultFrame(uintptr(m))
	f.c.Args[2] = f.host(unsafe.Pointer(&text[0]))
	function, err := d.result(cuModuleGetFunction, inContext, f)
	if err == nil {
		d.faults.name(driver.Function(function), name)
	}
	return driver.Function(function), err
}

// Launch enqueues a kernel. It blocks only if the driver's queue is full.
func (d *Device) Launch(l *driver.Launch) error {
	f := newFrame()
	f.c.Args = [11]uintptr{
		uintptr(l.Function),
		size(l.Grid.X), size(l.Grid.Y), size(l.Grid.Z),
		size(l.Block.X), size(l.Block.Y), size(l.Block.Z),
		uintptr(l.SharedBytes), uintptr(l.Stream), f.parameters(l.Args), 0,
	}
	err := d.end(f, d.invoke(cuLaunchKernel, l.Stream, f))
	if err == nil {
		d.faults.enqueued(l)
	}
	return err
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
