// Package guardkernels is the device code of the guard: the kernels that
// [driver.GuardImage] promises, for a CUDA driver. The simulated device has
// its own under the same name.
package guardkernels

import (
	_ "embed"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

//go:embed guard.ptx
var ptx []byte

// Image is the guard's kernels in the form that every driver takes.
func Image() driver.Image { return driver.Image{Name: driver.GuardImage, PTX: ptx} }
