package crossing

import "github.com/fencepost-gpu/fencepost/internal/bench/crossing/direct"

func init() {
	ways = append(ways, way{"assembly", func(fn uintptr, args [2]uintptr) func() uintptr {
		f := &direct.Frame{Fn: fn, Args: [4]uintptr{args[0], args[1]}}
		return func() uintptr { return direct.Call(f) }
	}})
}
