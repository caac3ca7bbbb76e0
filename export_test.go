package fencepost

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/health"
)

// LoadLibraryFrom makes Open load the CUDA driver from path until the test
// ends. The process keeps the library that it loaded first otherwise.
func LoadLibraryFrom(t *testing.T, path string) {
	before := loadLibrary
	loadLibrary = func() (*libcuda.Library, error) { return libcuda.LoadPath(path) }
	t.Cleanup(func() { loadLibrary = before })
}

// ReadHealth is what the rules of health look at.
func ReadHealth(r *Runtime) health.Reading { return r.readHealth() }
