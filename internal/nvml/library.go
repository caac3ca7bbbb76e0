//go:build linux && (amd64 || arm64)

package nvml

import (
	"cmp"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/fencepost-gpu/fencepost/internal/dynlib"
)

// functionNotFound is the library's own result for a call that its version
// lacks (NVML_ERROR_FUNCTION_NOT_FOUND).
const functionNotFound = 13

// library is the address of an open one.
type library uintptr

// open loads the first of names that can be.
func open(names []string) (library, error) {
	if len(names) == 0 {
		names = []string{Library}
	}
	var first error
	for _, name := range names {
		handle, err := dynlib.Open(name)
		if err == nil {
			return library(handle), nil
		}
		first = cmp.Or(first, err)
	}
	return 0, fmt.Errorf("%w: %w", ErrUnavailable, first)
}

// has reports whether the library has a function.
func (l library) has(name string) bool { return dynlib.Symbol(uintptr(l), name) != 0 }

// call calls a function by its name. Arguments that are addresses must be
// converted in the call itself, which keeps them where they are until it
// returns.
//
//go:uintptrescapes
func (l library) call(name string, args ...uintptr) int {
	function := dynlib.Symbol(uintptr(l), name)
	if function == 0 {
		return functionNotFound
	}
	result, _, _ := purego.SyscallN(function, args...)
	return int(int32(result))
}

// text calls a function whose last two arguments are a buffer and its size.
func (l library) text(name string, args ...uintptr) string {
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
	return unix.ByteSliceToString(buffer[:])
}

// explain is the library's text for a result.
func (l library) explain(code int) string {
	if function := dynlib.Symbol(uintptr(l), "nvmlErrorString"); function != 0 {
		// The address is a constant of the library's and no Go pointer: read
		// through its own address, which vet understands.
		if text, _, _ := purego.SyscallN(function, uintptr(code)); text != 0 {
			return unix.BytePtrToString(*(**byte)(unsafe.Pointer(&text)))
		}
	}
	return fmt.Sprintf("error %d", code)
}
