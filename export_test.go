package fencepost

import (
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

// LoadLibraryFrom makes Open load the CUDA driver from path until the test
// ends. The process keeps the library that it loaded first otherwise.
func LoadLibraryFrom(t *testing.T, path string) {
	before := loadLibrary
	loadLibrary = func() (*libcuda.Library, error) { return libcuda.LoadPath(path) }
	t.Cleanup(func() { loadLibrary = before })
}

// KernelLogAt makes Open take path for the kernel's log, and Xids wait so long, until the test ends.
func KernelLogAt(t *testing.T, path string, patience time.Duration) {
	path, kernelLogPath = kernelLogPath, path
	patience, xidPatience = xidPatience, patience
	t.Cleanup(func() { kernelLogPath, xidPatience = path, patience })
}

// KeptBlocks is how many blocks the job would look at when it ends.
func KeptBlocks(j *Job) int { return len(j.state.blocks) }
