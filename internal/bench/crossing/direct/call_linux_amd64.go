package direct

import (
	"unsafe"

	// Without cgo it brings the runtime's C side up, which cgocall needs.
	_ "github.com/ebitengine/purego"
)

// Frame is one call: what to call, with what, and what it returned. It must
// not live on a stack.
type Frame struct {
	Fn   uintptr
	Args [4]uintptr
	Ret  uintptr
}

// fixedABI0 is the address of the trampoline.
var fixedABI0 uintptr

//go:linkname runtimeCgocall runtime.cgocall
func runtimeCgocall(fn uintptr, arg unsafe.Pointer) int32

// Call makes the call of f and blocks as long as it does. The function must
// not call back into Go.
func Call(f *Frame) uintptr {
	runtimeCgocall(fixedABI0, unsafe.Pointer(f))
	return f.Ret
}
