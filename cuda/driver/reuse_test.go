package driver_test

import (
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

func ExampleReusePolicy() {
	fmt.Println(driver.ReusePolicy(0))
	fmt.Println(driver.ReuseFollowEvents | driver.ReuseOpportunistic)
	fmt.Println(driver.ReuseAll | 1<<7)
	// Output:
	// none
	// follow-events|opportunistic
	// follow-events|opportunistic|internal-dependencies|unknown
}

func TestUnwrapFindsTheDeviceBeneathEveryWrapper(t *testing.T) {
	device := new(drivertest.Null)
	wrapped := drivertest.NewFaults(drivertest.NewFaults(device))
	if got := driver.Unwrap(wrapped); got != driver.Driver(device) {
		t.Errorf("got %v", got)
	}
	if got := driver.Unwrap(device); got != driver.Driver(device) {
		t.Errorf("a device that wraps nothing: %v", got)
	}
}
