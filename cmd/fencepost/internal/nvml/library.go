//go:build linux && (amd64 || arm64)

package nvml

import (
	"bytes"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// functionNotFound is the library's own result for a call that its version
// lacks (NVML_ERROR_FUNCTION_NOT_FOUND).
const functionNotFound = 13

type library struct{ handle uintptr }

// open loads the first of names that can be.
func open(names []string) (*library, error) {
	if len(names) == 0 {
		names = []string{Library}
	}
	runtime.LockOSThread() // the linker keeps its words about a failure by thread
	defer runtime.UnlockOSThread()
	var first error
	for _, name := range names {
		handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err == nil {
			return &library{handle}, nil
		}
		if first == nil {
			first = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return nil, first
}

func (l *library) close() { _ = purego.Dlclose(l.handle) } // nothing is left to be done about it

// call calls a function by its name. Arguments that are addresses must be
// converted in the call itself, which keeps them where they are until it
// returns.
//
//go:uintptrescapes
func (l *library) call(name string, args ...uintptr) int {
	function, err := purego.Dlsym(l.handle, name)
	if err != nil {
		return functionNotFound
	}
	result, _, _ := purego.SyscallN(function, args...)
	return int(int32(result))
}

// text calls a function whose last two arguments are a buffer and its size.
func (l *library) text(name string, args ...uintptr) string {
	var buffer [96]byte // NVML_DEVICE_NAME_V2_BUFFER_SIZE, the longest of all
	var code int
	if len(args) == 0 {
		code = l.call(name, uintptr(unsafe.Pointer(&buffer)), uintptr(len(buffer)))
	} else {
		code = l.call(name, args[0], uintptr(unsafe.Pointer(&buffer)), uintptr(len(buffer)))
	}
	if code != success {
		return ""
	}
	text, _, _ := bytes.Cut(buffer[:], []byte{0})
	return string(text)
}

// explain is the library's text for a result.
func (l *library) explain(code int) string {
	function, err := purego.Dlsym(l.handle, "nvmlErrorString")
	if err != nil {
		return fmt.Sprintf("error %d", code)
	}
	text, _, _ := purego.SyscallN(function, uintptr(code))
	if text == 0 {
		return fmt.Sprintf("error %d", code)
	}
	// The address is a constant of the library's and no Go pointer: read
	// through its own address, which vet understands.
	return cString(*(*unsafe.Pointer)(unsafe.Pointer(&text)))
}

// cString copies a string that ends with a zero byte.
func cString(p unsafe.Pointer) string {
	var text []byte
	for b := *(*byte)(p); b != 0 && len(text) < 256; b = *(*byte)(unsafe.Add(p, len(text))) {
		text = append(text, b)
	}
	return string(text)
}
