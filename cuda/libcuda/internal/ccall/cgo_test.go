//go:build cgo && linux && (amd64 || arm64)

package ccall_test

import "github.com/fencepost-gpu/fencepost/cuda/libcuda/internal/ccall/cgocall"

func init() {
	ways = append(ways, way{"cgo", func(fn uintptr, args [2]uintptr) func() uintptr {
		return func() uintptr { return cgocall.Call(fn, args[0], args[1], 0) }
	}})
}
