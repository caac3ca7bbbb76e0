//go:build linux && (amd64 || arm64)

package libcuda

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// open loads a library. RTLD_LOCAL keeps its symbols from those of a second
// copy of the driver, which CUDA's own tools may have loaded.
//
// The thread is locked: what the linker has to say about a failure is kept by
// thread, and fetched with a call of its own.
func open(path string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
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
