// Package version says which version of Fencepost a program was built with.
package version

import (
	"cmp"
	"runtime/debug"
	"sync"
)

const module = "github.com/fencepost-gpu/fencepost"

// Fencepost is this module's version in the program that runs, such as
// "v1.2.3": "(devel)" where it was built from a working copy, and "unknown"
// where the program does not say. It does not change.
var Fencepost = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return in(info)
})

// in is the version of this module in a program, whether it is the main one or
// a dependency, perhaps a replaced one.
func in(info *debug.BuildInfo) string {
	if info.Main.Path == module {
		return cmp.Or(info.Main.Version, "(devel)")
	}
	for _, dep := range info.Deps {
		if dep.Path != module {
			continue
		}
		if dep.Replace != nil {
			dep = dep.Replace
		}
		return cmp.Or(dep.Version, "(devel)")
	}
	return "unknown"
}
