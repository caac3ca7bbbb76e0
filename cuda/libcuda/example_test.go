package libcuda_test

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// ExampleLoad takes the first GPU, or the simulated device where there is none.
func ExampleLoad() {
	device, err := firstGPU()
	if errors.Is(err, libcuda.ErrNoDriver) {
		// The error says what is wrong with the driver and what to do.
		device, err = sim.Open(sim.Config{})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = device.Close() }()
	p, err := device.Properties()
	fmt.Println(p.TotalBytes > 0, err)
	// Output: true <nil>
}

func firstGPU() (driver.Driver, error) {
	library, err := libcuda.Load()
	if err != nil {
		return nil, err
	}
	return library.Open(0)
}
