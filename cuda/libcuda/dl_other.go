//go:build !(linux && (amd64 || arm64))

package libcuda

import (
	"errors"
	"runtime"
)

// open fails: this package knows the driver on Linux, amd64 and arm64.
func open(string) (uintptr, error) {
	return 0, errors.New("the CUDA driver is not supported on " + runtime.GOOS + "/" + runtime.GOARCH)
}

func lookUp(uintptr, string) uintptr { return 0 }

func crossing(uintptr, []uintptr) uintptr { return uintptr(codeMissing) }
