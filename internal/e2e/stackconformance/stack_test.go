package stackconformance_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e/stackconformance"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deviceBytes = 4 << 30

// It takes some 20 seconds with the race detector: the whole conformance suite runs over
// each stack.
func TestStacksConformInEveryOrder(t *testing.T) {
	for _, order := range stackconformance.Orders() {
		if testing.Short() && slices.Equal(order, []string{"logging", "budget", "guard hunt", "telemetry"}) {
			continue // the same layers run with probes between them
		}
		if testing.Short() && len(order) == 1 && order[0] != "budget" {
			continue // the layer's own package runs the suite over the fake device
		}
		schedules := []sim.Schedule{sim.FreeRunning(), sim.Seeded(7)}
		if testing.Short() || slices.Contains(order, "guard hunt") {
			schedules = schedules[:1] // a hunt fills and compares every byte: seconds
		}
		for _, schedule := range schedules {
			t.Run(stackconformance.Name(order)+" "+schedule.String(), func(t *testing.T) {
				stackconformance.Run(t, order, simulated(schedule, nil))
			})
		}
	}
}

// The runtime's own pool below: the stack of fencepost.Open in each of its modes, and the others
// that have all layers.
func TestStacksConformOverThePoolOfTheRuntimesOwn(t *testing.T) {
	for i, order := range stackconformance.Orders() {
		if len(order) < 4 || i > 0 && testing.Short() {
			continue
		}
		schedule := []sim.Schedule{sim.FreeRunning(), sim.Seeded(11)}[i%2]
		t.Run(stackconformance.Name(order)+" "+schedule.String(), func(t *testing.T) {
			stackconformance.Run(t, order, simulated(schedule, &cuda.PoolConfig{}))
		})
	}
}

// maxBlock is 1 MiB: a guard fills and compares every byte of some blocks, and the race detector
// watches each of them. A quarter of it shows the same.
func maxBlock() uint64 {
	if testing.Short() {
		return 256 << 10
	}
	return 1 << 20
}

func simulated(schedule sim.Schedule, pool *cuda.PoolConfig) stackconformance.Place {
	return stackconformance.Place{
		Open: func(t *testing.T, wrap func(driver.Driver) driver.Driver) *teststack.Stack {
			return teststack.Open(t, teststack.Config{Sim: sim.Config{Bytes: deviceBytes, Schedule: schedule}, Streams: 64, Wrap: wrap, Pool: pool})
		},
		Device: (*teststack.Stack).Device,
		Bytes:  deviceBytes, Limit: 3 << 30, MaxBlock: maxBlock(),
	}
}
