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
	f := newFrame()
	f.host(unsafe.Pointer(j))
	f.args[0], f.args[1], f.args[2] = f.result(0), uintptr(unsafe.Pointer(unsafe.SliceData(j.image))), uintptr(len(j.options))
	f.args[3], f.args[4] = uintptr(unsafe.Pointer(&j.options)), uintptr(unsafe.Pointer(&j.values))
	code := d.bound(cuModuleLoadDataEx, f, 5)
	m := driver.Module(f.out[0])
	return m, withLog(d.end(f, code), j)
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
	f := newFrame()
	f.args[0] = uintptr(m)
	return d.end(f, d.bound(cuModuleUnload, f, 1))
}

// ModuleFunction looks a kernel up by its name. It may load the kernel's code,
// and block.
func (d *Device) ModuleFunction(m driver.Module, name string) (driver.Function, error) {
	text := append([]byte(name), 0)
	f := newFrame()
	f.args[0], f.args[1], f.args[2] = f.result(0), uintptr(m), f.host(unsafe.Pointer(&text[0]))
	code := d.bound(cuModuleGetFunction, f, 3)
	function := driver.Function(f.out[0])
	return function, d.end(f, code)
}
