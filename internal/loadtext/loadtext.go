// Package loadtext says in one short line why the CUDA driver could not be
// loaded. The whole error adds the dynamic linker's words and what to do, for
// somebody who wants a GPU.
package loadtext

import (
	"errors"
	"strings"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

// absent is the dynamic linker's word for a file that is not there.
const absent = "No such file or directory"

// Brief is the error without its help, and shorter where there is no library.
// Errors of other kinds are left whole.
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
	if len(present) == 0 {
		return libcuda.ErrNoDriver.Error() + ": " + e.Path + " not found"
	}
	return libcuda.ErrNoDriver.Error() + ": " + strings.Join(present, "; ")
}
