package stackconformance

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/teststack"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	deviceBytes = 4 << 30
	limit       = 3 << 30
	maxBlock    = 1 << 20
)

// build is what one stack's layers are made with.
type build struct {
	t     *testing.T
	stack *teststack.Stack
	ring  *logging.Ring
}

// The layers, by the names that the orders below use.
var layers = map[string]func(*build) core.Layer{
	"logging": func(b *build) core.Layer {
		return func(up core.Resource) (core.Resource, error) {
			return logging.New(up, logging.Config{Sinks: []logging.Sink{b.ring}})
		}
	},
	"budget": func(*build) core.Layer {
		return func(up core.Resource) (core.Resource, error) { return budget.New(up, budget.Config{Limit: limit}) }
	},
	"guard off":    guard(debugguard.Off),
	"guard ledger": guard(debugguard.Ledger),
	"guard sample": guard(debugguard.Sample),
	"guard hunt":   guard(debugguard.Hunt),
	"telemetry": func(*build) core.Layer {
		return func(up core.Resource) (core.Resource, error) { return telemetry.NewResource(up, telemetry.Config{}) }
	},
}

func guard(mode debugguard.Mode) func(*build) core.Layer {
	return func(b *build) core.Layer {
		return func(up core.Resource) (core.Resource, error) {
			ops, err := cuda.NewDeviceOps(b.stack.Driver, b.stack.Streams, guardkernels.Image())
			if err != nil {
				return nil, err
			}
			b.t.Cleanup(func() {
				if err := ops.Close(); err != nil {
					b.t.Errorf("closing the device operations: %v", err)
				}
			})
			return debugguard.New(up, debugguard.Config{Mode: mode, Device: ops, SampleBytes: 64 << 10, QuarantineBytes: 8 << 20})
		}
	}
}

// orders are from the device outwards. The first is that of fencepost.Open.
var orders = [][]string{
	{"logging", "budget", "guard off", "telemetry"},
	{"logging", "budget", "guard ledger", "telemetry"},
	{"logging", "budget", "guard sample", "telemetry"},
	{"logging", "budget", "guard hunt", "telemetry"},
	{"budget", "logging", "guard sample", "telemetry"},
	{"guard hunt", "budget", "logging", "telemetry"},
	{"guard sample", "logging", "budget", "telemetry"},
	{"telemetry", "logging", "budget", "guard sample"},
	{"logging", "telemetry", "guard ledger", "budget"},
	{"logging"}, {"budget"}, {"guard sample"}, {"telemetry"},
}

func TestStacksConformInEveryOrder(t *testing.T) {
	for _, order := range orders {
		schedules := []sim.Schedule{sim.FreeRunning(), sim.Seeded(7)}
		if slices.Contains(order, "guard hunt") {
			schedules = schedules[:1] // it fills and compares every byte: seconds
		}
		for _, schedule := range schedules {
			t.Run(name(order)+" "+schedule.String(), func(t *testing.T) {
				coretest.Run(t, func(t *testing.T) coretest.Subject { return subject(t, order, schedule) })
			})
		}
	}
}

func name(order []string) string {
	text := ""
	for _, layer := range order {
		text += layer + ","
	}
	return text
}

func subject(t *testing.T, order []string, schedule sim.Schedule) coretest.Subject {
	t.Helper()
	var faults *drivertest.Faults
	b := &build{t: t, ring: logging.NewRing(1 << 10)}
	b.stack = teststack.Open(t, teststack.Config{
		Sim: sim.Config{Bytes: deviceBytes, Schedule: schedule}, Streams: 64,
		Wrap: func(d driver.Driver) driver.Driver { faults = drivertest.NewFaults(d); return faults },
	})
	s := coretest.Subject{
		Features: core.UseTracking | core.StreamOrdered, Device: b.stack.Device(), Capacity: deviceBytes, MaxBlock: maxBlock,
		Streams:      func(t testing.TB) core.StreamID { return b.stack.Lease(t, "conformance").ID() },
		FailNextFree: func() { faults.FailMethod(drivertest.MemFreeAsync, 1, driver.InvalidValue) },
	}
	var chain []core.Layer
	for _, layer := range order {
		chain = append(chain, layers[layer](b))
		switch layer {
		case "budget":
			s.Features, s.Budget = s.Features|core.Reservations, limit
		case "guard off", "guard ledger":
			s.Features |= core.DeviceChecks
		case "guard sample", "guard hunt":
			s.Features |= core.DeviceChecks
			s.FailNextFree = nil // a block in quarantine is freed later
		}
	}
	top, err := core.Chain(b.stack.Async, chain...)
	if err != nil {
		t.Fatal(err)
	}
	s.Resource = top
	return s
}
