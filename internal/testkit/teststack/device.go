package teststack

import (
	"bytes"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Device lets the conformance suite touch the simulated device's bytes, past
// whatever stands between the runtime and the device.
func (s *Stack) Device() coretest.Device { return device{s} }

type device struct{ *Stack }

func (d device) handle(id core.StreamID) driver.Stream {
	h, err := d.Streams.Handle(id)
	if err != nil {
		panic(fmt.Sprintf("the suite named a stream that it does not hold: %v", err))
	}
	return h
}

func (d device) Write(stream core.StreamID, ptr uint64, src []byte) error {
	return d.Sim.CopyToDeviceAsync(ptr, bytes.Clone(src), d.handle(stream))
}

func (d device) Read(stream core.StreamID, ptr uint64, dst []byte) error {
	return d.Sim.CopyToHostAsync(dst, ptr, d.handle(stream))
}

func (d device) Stall(stream core.StreamID) func() {
	release, err := d.Sim.Hold(d.handle(stream))
	if err != nil {
		panic(fmt.Sprintf("holding a stream: %v", err))
	}
	return release
}

func (d device) Sync(stream core.StreamID) error {
	return d.Sim.StreamSynchronize(d.handle(stream))
}
