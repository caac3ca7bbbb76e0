// Package ccall calls C functions by their addresses, for package libcuda.
//
// On linux/amd64 it has a trampoline of its own over the Go runtime's cgocall,
// of one shape that fits every call of the CUDA driver's. Elsewhere it is
// purego's general call. What that is worth is measured by the benchmarks
// here, on the machine's own CUDA driver too.
package ccall

// Frame is one call: what to call, with what, and what it returned. It must
// not live on a Go stack, which may move, and serves one call at a time.
// Arguments are integers and pointers; those that the function does not take
// are not looked at.
type Frame struct {
	Fn   uintptr
	Args [11]uintptr
	Ret  uintptr
}
