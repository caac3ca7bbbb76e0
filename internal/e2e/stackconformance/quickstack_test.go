package stackconformance_test

import (
	"context"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

const limit = 48 << 20

// whole is the stack of fencepost.Open over the runtime's own pool, and its layers.
type whole struct {
	*teststack.Stack
	ring   *logging.Ring
	log    *logging.Resource
	budget *budget.Resource
	guard  *debugguard.Resource
	calls  *telemetry.Resource
	faults *drivertest.Faults
}

// setup says how a stack is built.
type setup struct {
	schedule sim.Schedule
	guard    debugguard.Config
	// fills: the guard has a device to fill.
	fills bool
	// between are more layers, by how many of the stack's are beneath them.
	between map[int]core.Layer
}

func openWhole(t *testing.T, how setup) *whole {
	t.Helper()
	s := &whole{ring: logging.NewRing(1 << 12)}
	s.Stack = teststack.Open(t, teststack.Config{Sim: sim.Config{Bytes: 256 << 20, Schedule: how.schedule}, Streams: 16, Pool: &cuda.PoolConfig{},
		Async: cuda.AsyncConfig{ReapInterval: -1},
		Wrap:  func(d driver.Driver) driver.Driver { s.faults = drivertest.NewFaults(d); return s.faults }})
	if how.fills {
		ops, err := cuda.NewDeviceOps(s.Driver, s.Streams, guardkernels.Image())
		must.Do(t, err)
		t.Cleanup(func() {
			expect.Success(t, ops.Close(context.Background()))
		})
		how.guard.Device = ops
	}
	layers := []core.Layer{
		func(up core.Resource) (_ core.Resource, err error) {
			s.log, err = logging.New(up, logging.Config{Sinks: []logging.Sink{s.ring}})
			return s.log, err
		},
		func(up core.Resource) (_ core.Resource, err error) {
			s.budget, err = budget.New(up, budget.Config{Limit: limit})
			return s.budget, err
		},
		func(up core.Resource) (_ core.Resource, err error) {
			s.guard, err = debugguard.New(up, how.guard)
			return s.guard, err
		},
		func(up core.Resource) (_ core.Resource, err error) {
			s.calls, err = telemetry.NewResource(up, telemetry.Config{})
			return s.calls, err
		},
	}
	for beneath := len(layers); beneath >= 0; beneath-- {
		if more := how.between[beneath]; more != nil {
			layers = slices.Insert(layers, beneath, more)
		}
	}
	top, err := core.Chain(s.Backend, layers...)
	must.Do(t, err)
	if s.Runtime, err = core.NewRuntime(top, nil); err != nil {
		t.Fatal(err)
	}
	return s
}
