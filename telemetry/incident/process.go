package incident

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
)

const module = "github.com/fencepost-gpu/fencepost"

// thisProcess is the process that runs; it does not change.
var thisProcess = sync.OnceValue(func() Process {
	p := Process{PID: os.Getpid(), Program: "unknown", Go: runtime.Version(), Fencepost: "unknown"}
	if len(os.Args) > 0 {
		p.Program = clean(filepath.Base(os.Args[0]))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		p.Fencepost = versionIn(info)
	}
	return p
})

// versionIn is the version of this module in a program, whether it is the main
// one or a dependency, perhaps a replaced one.
func versionIn(info *debug.BuildInfo) string {
	if info.Main.Path == module {
		return orUnknown(info.Main.Version)
	}
	for _, dep := range info.Deps {
		if dep.Path != module {
			continue
		}
		if dep.Replace != nil {
			return orUnknown(dep.Replace.Version)
		}
		return orUnknown(dep.Version)
	}
	return "unknown"
}

func orUnknown(version string) string {
	if version == "" {
		return "(devel)"
	}
	return version
}
