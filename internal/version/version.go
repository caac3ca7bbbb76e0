// Package version says which version of Fencepost a program was built with.
package version

import (
	"cmp"
	"runtime"
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

// Line is the version with what it was built from and by, such as "v1.2.3
// go1.26.8 linux/amd64", or "(devel) go1.26.8 linux/amd64, revision
// 0123456789ab, modified" where the build says so.
func Line() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return line(info, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
}

func line(info *debug.BuildInfo, compiler, platform string) string {
	text := in(info) + " " + compiler + " " + platform
	if info.Main.Path != module { // what follows is the program's, not ours
		return text
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text += ", revision " + s.Value[:min(len(s.Value), revisionLength)]
		case s.Key == "vcs.modified" && s.Value == "true":
			text += ", modified"
		}
	}
	return text
}

// revisionLength is how much of a revision tells it from others.
const revisionLength = 12

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
