package fencepost

import (
	"net/http"
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

// HoldGuardSwitch keeps the guard from being switched until release is called.
func HoldGuardSwitch(r *Runtime) (release func()) {
	r.switching.Lock()
	return r.switching.Unlock
}

// GuardHandlerWithin is the endpoint with another limit.
func GuardHandlerWithin(r *Runtime, limit time.Duration) http.Handler {
	h := r.GuardHandler().(*guardHandler)
	h.limit = limit
	return h
}
