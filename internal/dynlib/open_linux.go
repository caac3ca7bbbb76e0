//go:build linux && (amd64 || arm64)

package dynlib

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// Supported is whether libraries can be opened on this system.
const Supported = true

// Open loads a library. RTLD_LOCAL keeps its symbols from those of a second
// copy of the driver, which CUDA's own tools may have loaded.
//
// The thread is locked: what the linker has to say about a failure is kept by
// thread, and fetched with a call of its own.
func Open(path string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// Symbol is the address of a symbol of an open library, 0 if there is none.
func Symbol(library uintptr, name string) uintptr {
	address, err := purego.Dlsym(library, name)
	if err != nil {
		return 0
	}
	return address
}
