//go:build linux && (amd64 || arm64)

package libcuda

import "github.com/ebitengine/purego"

// open loads a library. RTLD_LOCAL keeps its symbols from those of a second
// copy of the driver, which CUDA's own tools may have loaded.
func open(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// lookUp returns the address of a symbol, 0 if there is none.
func lookUp(library uintptr, symbol string) uintptr {
	fn, err := purego.Dlsym(library, symbol)
	if err != nil {
		return 0
	}
	return fn
}

// crossing calls a C function whose arguments are integers and pointers. A
// slice that is handed on whole allocates nothing.
func crossing(fn uintptr, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}
