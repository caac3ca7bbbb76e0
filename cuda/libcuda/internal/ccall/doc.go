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
	// Next is a call to make behind this one on the same thread, in the same
	// crossing into C; nil for none.
	Next *Frame
	// Must leaves out what is behind this call if the low 32 bits of its
	// result are not zero, which is an error's code.
	Must bool
}
