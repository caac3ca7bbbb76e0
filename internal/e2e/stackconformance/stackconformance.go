// Package stackconformance is the conformance suite over whole stacks, in every
// sensible order of their layers, on any device. It is a package of its own
// because no layer may import another.
package stackconformance

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// Place is a device to build stacks on.
type Place struct {
	// Open opens a stack without layers that the end of t closes. The
	// driver's calls go through wrap.
	Open func(t *testing.T, wrap func(driver.Driver) driver.Driver) *teststack.Stack
	// Device reaches the bytes of such a stack.
	Device func(*teststack.Stack) coretest.Device
	// Bytes is the device's memory, Limit the budget of stacks that have one,
	// MaxBlock the largest block that is tried.
	Bytes, Limit, MaxBlock uint64
}

// build is what one stack's layers are made with.
type build struct {
	t     *testing.T
	place Place
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
	"budget": func(b *build) core.Layer {
		return func(up core.Resource) (core.Resource, error) {
			return budget.New(up, budget.Config{Limit: b.place.Limit})
		}
	},
	"guard off":    guard(debugguard.Off),
	"guard ledger": guard(debugguard.Ledger),
	"guard sample": guard(debugguard.Sample),
	"guard hunt":   guard(debugguard.Hunt),
	"probe": func(*build) core.Layer {
		return func(up core.Resource) (core.Resource, error) {
			return telemetry.NewProbe(up, telemetry.LayerBudget, nil)
		}
	},
	"telemetry": func(*build) core.Layer {
		return func(up core.Resource) (core.Resource, error) { return telemetry.NewResource(up, telemetry.Config{}) }
	},
	"gate":     func(b *build) core.Layer { return pathtest.Put(nil, pathtest.Seed(b.t), 3) },
	"stranger": func(*build) core.Layer { return pathtest.PutStranger(nil) },
}

func guard(mode debugguard.Mode) func(*build) core.Layer {
	return func(b *build) core.Layer {
		return func(up core.Resource) (core.Resource, error) {
			ops, err := cuda.NewDeviceOps(b.stack.Driver, b.stack.Streams, guardkernels.Image())
			if err != nil {
				return nil, err
			}
			b.t.Cleanup(func() {
				if err := ops.Close(context.Background()); err != nil {
					b.t.Errorf("closing the device operations: %v", err)
				}
			})
			return debugguard.New(up, debugguard.Config{Mode: mode, Device: ops, SampleBytes: 64 << 10, QuarantineBytes: 8 << 20})
		}
	}
}

var orders = [][]string{
	{"logging", "budget", "guard off", "telemetry"},
	{"logging", "budget", "guard ledger", "telemetry"},
	{"logging", "budget", "guard sample", "telemetry"},
	{"logging", "budget", "guard hunt", "telemetry"},
	{"budget", "logging", "guard sample", "telemetry"},
	{"guard hunt", "budget", "logging", "telemetry"},
	{"guard sample", "logging", "budget", "telemetry"},
	{"telemetry", "logging", "budget", "guard sample"},
	{"probe", "logging", "probe", "budget", "probe", "guard hunt", "probe", "telemetry"},
	{"logging", "telemetry", "guard ledger", "budget"},
	{"logging"}, {"budget"}, {"guard sample"}, {"telemetry"},
}

// Orders are the stacks, each a list of layers from the device outwards. The
// first is that of fencepost.Open.
func Orders() [][]string { return slices.Clone(orders) }

// Name is an order as a test's name.
func Name(order []string) string { return strings.Join(order, ",") }

// Run runs the conformance suite over the stack of that order.
func Run(t *testing.T, order []string, place Place) {
	t.Helper()
	coretest.Run(t, func(t *testing.T) coretest.Subject { return subject(t, order, place) })
}

func subject(t *testing.T, order []string, place Place) coretest.Subject {
	t.Helper()
	var faults *drivertest.Faults
	b := &build{t: t, place: place, ring: logging.NewRing(1 << 10)}
	b.stack = place.Open(t, func(d driver.Driver) driver.Driver { faults = drivertest.NewFaults(d); return faults })
	s := coretest.Subject{
		Features: core.UseTracking | core.StreamOrdered | b.stack.Backend.Features()&(core.Isolation|core.OrderedRelease), Device: place.Device(b.stack), Capacity: place.Bytes, MaxBlock: place.MaxBlock,
		Streams: func(t testing.TB) core.StreamID { return b.stack.Lease(t, "conformance").ID() },
	}
	if b.stack.Async != nil { // the other has no call of the driver to fail
		s.FailNextFree = func() { faults.FailMethod(drivertest.MemFreeAsync, 1, driver.InvalidValue) }
	}
	var chain []core.Layer
	for _, layer := range order {
		chain = append(chain, layers[layer](b))
		s = adapted(s, layer, place)
	}
	top, err := core.Chain(b.stack.Backend, chain...)
	if err != nil {
		t.Fatal(err)
	}
	s.Resource = top
	return s
}

// adapted is what a layer changes in what may be expected.
func adapted(s coretest.Subject, layer string, place Place) coretest.Subject {
	switch layer {
	case "budget":
		s.Features, s.Budget = s.Features|core.Reservations, place.Limit
	case "guard off", "guard ledger":
		s.Features |= core.DeviceChecks
	case "guard sample", "guard hunt":
		s.Features |= core.DeviceChecks
		s.FailNextFree = nil // a block in quarantine is freed later
	}
	return s
}
