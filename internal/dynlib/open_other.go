//go:build !(linux && (amd64 || arm64))

package dynlib

import (
	"errors"
	"runtime"
)

// Supported is whether libraries can be opened on this system.
const Supported = false

// Open fails.
func Open(string) (uintptr, error) {
	return 0, errors.New("NVIDIA's libraries are used on Linux for amd64 and arm64, and this is " + runtime.GOOS + "/" + runtime.GOARCH)
}

// Symbol is 0.
func Symbol(uintptr, string) uintptr { return 0 }
