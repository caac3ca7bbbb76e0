package incident

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/fencepost-gpu/fencepost/internal/version"
)

// thisProcess is the process that runs; it does not change.
var thisProcess = sync.OnceValue(func() Process {
	p := Process{PID: os.Getpid(), Program: "unknown", Go: runtime.Version(), Fencepost: version.Fencepost()}
	if len(os.Args) > 0 {
		p.Program = clean(filepath.Base(os.Args[0]))
	}
	return p
})
