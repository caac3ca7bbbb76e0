package ccall

import (
	"unsafe"

	// Without cgo it brings the runtime's C side up, which cgocall needs.
	_ "github.com/ebitengine/purego"
)

// trampoline is the address of the assembly.
var trampoline uintptr

//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// Call makes the call of f, and those behind it, and blocks as long as they do.
// No function may call back into Go. It allocates nothing and is safe for
// concurrent use.
func Call(f *Frame) {
	cgocall(trampoline, unsafe.Pointer(f))
}
