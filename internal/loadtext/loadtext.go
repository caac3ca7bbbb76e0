// Package loadtext says in one short line why the CUDA driver could not be
// loaded. The whole error lists every path that was tried, which is what
// somebody needs who looks for a library that should be there.
package loadtext

import (
	"errors"
	"strings"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

// absent is the dynamic linker's word for a file that is not there.
const absent = "No such file or directory"

// Brief is the error without the places where there is no library and without
// its help. Errors of other kinds are left whole.
func Brief(err error) string {
	e, ok := errors.AsType[*libcuda.LoadError](err)
	switch {
	case !ok:
		return err.Error()
	case e.Stage != libcuda.StageOpen:
		return libcuda.ErrNoDriver.Error() + ": " + e.Path + ": " + e.Text
	}
	_, reasons, _ := strings.Cut(e.Text, ": ")
	var present []string
	for reason := range strings.SplitSeq(reasons, "; ") {
		if !strings.Contains(reason, absent) {
			present = append(present, reason)
		}
	}
	name := "libcuda.so.1"
	if e.Path != "" {
		name = e.Path
	}
	if len(present) == 0 {
		return libcuda.ErrNoDriver.Error() + ": " + name + " not found"
	}
	return libcuda.ErrNoDriver.Error() + ": " + strings.Join(present, "; ")
}
