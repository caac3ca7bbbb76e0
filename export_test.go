package fencepost

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

// LoadLibraryFrom makes Open load the CUDA driver from path until the test
// ends. The process keeps the library that it loaded first otherwise.
func LoadLibraryFrom(t *testing.T, path string) {
	before := loadLibrary
	loadLibrary = func() (*libcuda.Library, error) { return libcuda.LoadPath(path) }
	t.Cleanup(func() { loadLibrary = before })
}
