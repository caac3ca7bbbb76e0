package gputest

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e/stackconformance"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

func TestTheDriverConforms(t *testing.T) {
	provokesErrors(t)
	gpu(t)
	drivertest.Conformance(t, func(t *testing.T) driver.Driver {
		if dryRun {
			d, err := sim.Open(sim.Config{})
			must(t, err)
			return d
		}
		d, err := openGPU(0)
		must(t, err)
		return d
	})
}

func TestTheBackendConforms(t *testing.T) {
	provokesErrors(t)
	h := gpu(t)
	coretest.Run(t, func(t *testing.T) coretest.Subject {
		s, _ := h.backend(t)
		return s
	})
}

func TestDirectConforms(t *testing.T) {
	provokesErrors(t)
	h := gpu(t)
	coretest.Run(t, func(t *testing.T) coretest.Subject {
		s, faults := h.backend(t)
		s.Resource, s.Features = cuda.NewDirectResource(faults), 0
		s.FailNextFree = func() { faults.FailMethod(drivertest.MemFree, 1, driver.InvalidValue) }
		return s
	})
}

func TestStacksConformInEveryOrder(t *testing.T) {
	provokesErrors(t)
	h := gpu(t)
	orders := stackconformance.Orders()
	for _, order := range orders[:scaled(len(orders), 1)] {
		t.Run(stackconformance.Name(order), func(t *testing.T) { stackconformance.Run(t, order, h.place(t)) })
	}
}

// place is the device for stacks. Half of what is free is enough for all cases
// together and leaves something to whoever shares the GPU.
func (h *hardware) place(t *testing.T) stackconformance.Place {
	t.Helper()
	free, total, err := h.MemInfo()
	must(t, err)
	p := stackconformance.Place{Open: h.stack, Device: h.touch, Bytes: total, Limit: min(16<<30, free/2), MaxBlock: 1 << 30}
	if dryRun {
		p.MaxBlock = 1 << 20 // the CPU fills and compares every byte
	}
	return p
}

// stack opens a stack without layers over the device.
func (h *hardware) stack(t *testing.T, wrap func(driver.Driver) driver.Driver) *teststack.Stack {
	t.Helper()
	must(t, h.rewind())
	cfg := teststack.Config{Device: h.Driver, Streams: 64, Wrap: wrap, DeviceOrder: sanitized}
	if resource == "pool" {
		cfg.Pool = &cuda.PoolConfig{}
	}
	return teststack.Open(t, cfg)
}

func (h *hardware) backend(t *testing.T) (coretest.Subject, *drivertest.Faults) {
	t.Helper()
	var faults *drivertest.Faults
	p := h.place(t)
	stack := p.Open(t, func(d driver.Driver) driver.Driver { faults = drivertest.NewFaults(d); return faults })
	subject := coretest.Subject{
		Resource: stack.Backend,
		Features: core.UseTracking | core.StreamOrdered | stack.Backend.Features()&(core.Isolation|core.OrderedRelease),
		Streams:  func(t testing.TB) core.StreamID { return stack.Lease(t, "conformance").ID() },
		Device:   p.Device(stack),
		Capacity: p.Bytes, MaxBlock: p.MaxBlock,
	}
	if stack.Async != nil { // the other calls no driver for a free
		subject.FailNextFree = func() { faults.FailMethod(drivertest.MemFreeAsync, 1, driver.InvalidValue) }
	}
	return subject, faults
}
