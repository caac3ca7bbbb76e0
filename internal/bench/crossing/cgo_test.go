//go:build cgo

package crossing

import "github.com/fencepost-gpu/fencepost/internal/bench/crossing/cgocall"

func init() {
	ways = append(ways, way{"cgo", func(fn uintptr, args [2]uintptr) func() uintptr {
		return func() uintptr { return cgocall.Call(fn, args[0], args[1], 0) }
	}})
}
