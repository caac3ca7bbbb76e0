package stackconformance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// withLayers opens a runtime for the suite, whose layers are those given.
func withLayers(t *testing.T, guard fencepost.GuardMode, layers fencepost.Layers) (coretest.Subject, *fencepost.Runtime) {
	t.Helper()
	device, err := sim.Open(sim.Config{Bytes: deviceBytes, Schedule: sim.Seeded(17)})
	must.Do(t, err)
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Driver: device, Guard: guard, Budget: 3 << 30, Layers: layers,
		GuardConfig: debugguard.Config{QuarantineBytes: 8 << 20}})
	must.Do(t, err)
	t.Cleanup(func() {
		if _, err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
		expect.Success(t, device.Close())
	})
	stack := &teststack.Stack{Sim: device, Driver: device, Streams: rt.Streams()}
	return coretest.Subject{
		Resource: rt.Core().Resource(), Device: stack.Device(), Capacity: deviceBytes, Budget: 3 << 30, MaxBlock: maxBlock(),
		Features: core.UseTracking | core.StreamOrdered | core.Isolation | core.Reservations | core.DeviceChecks | core.Base(rt.Core().Resource()).Features()&core.OrderedRelease,
		Streams:  func(t testing.TB) core.StreamID { return stack.Lease(t, "conformance").ID() },
	}, rt
}

// The stack of Open conforms with layers of a program's own in each of the places.
func TestOpensStackConformsWithLayersOfAProgram(t *testing.T) {
	for _, guard := range []fencepost.GuardMode{fencepost.GuardLedger, fencepost.GuardSample} {
		for name, layers := range map[string]fencepost.Layers{
			"around the budget": {AroundBudget: []core.Layer{pathtest.PutStranger(nil), nil}},
			"around the guard":  {AroundGuard: []core.Layer{pathtest.PutStranger(nil)}},
			"around both":       {AroundBudget: []core.Layer{pathtest.PutStranger(nil)}, AroundGuard: []core.Layer{pathtest.PutStranger(nil), pathtest.PutStranger(nil)}},
		} {
			if testing.Short() && (guard != fencepost.GuardSample || name != "around both") {
				continue
			}
			t.Run(name+" "+string(guard), func(t *testing.T) {
				coretest.Run(t, func(t *testing.T) coretest.Subject {
					subject, _ := withLayers(t, guard, layers)
					return subject
				})
			})
		}
	}
}

// A layer around the guard sees what callers ask for, one around the budget what the device
// is asked for.
func TestLayersStandWhereTheirNameSays(t *testing.T) {
	var asked, allocated *pathtest.Stranger
	_, rt := withLayers(t, fencepost.GuardHunt, fencepost.Layers{AroundBudget: []core.Layer{pathtest.PutStranger(&allocated)}, AroundGuard: []core.Layer{pathtest.PutStranger(&asked)}})
	if got, want := rt.String(), "telemetry(stranger(debugguard(stranger(budget(logging(pool(sim:0)))))))"; got != want {
		t.Errorf("the stack is %s, want %s", got, want)
	}
	b := must.Get(rt.Allocate(t.Context(), core.Request{Bytes: 4096, Tag: "a"}))(t)
	must.Get(rt.Deallocate(t.Context(), b.ID))(t)
	if asked.Calls.Allocations.Load() != 1 || asked.Calls.Frees.Load() != 1 {
		t.Errorf("around the guard: %d allocations, %d frees", asked.Calls.Allocations.Load(), asked.Calls.Frees.Load())
	}
	if allocated.Calls.Allocations.Load() == 0 || allocated.Calls.Frees.Load() != 0 { // it is in quarantine
		t.Errorf("around the budget: %d allocations, %d frees", allocated.Calls.Allocations.Load(), allocated.Calls.Frees.Load())
	}
}

// hiding is a layer that no look at the stack gets past.
type hiding struct{ core.Resource }

func (hiding) Unwrap() core.Resource { return nil }

func TestALayerThatFailsOrHidesTheBackendFailsOpen(t *testing.T) {
	mine := errors.New("no")
	for name, layer := range map[string]core.Layer{
		"fails": func(core.Resource) (core.Resource, error) { return nil, mine },
		"hides": func(up core.Resource) (core.Resource, error) { return hiding{up}, nil },
	} {
		for _, layers := range []fencepost.Layers{{AroundBudget: []core.Layer{layer}}, {AroundGuard: []core.Layer{layer}}} {
			rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Layers: layers})
			if rt != nil || !errors.Is(err, mine) && !errors.Is(err, core.ErrInvalidRequest) {
				t.Errorf("%s: %v, %v", name, rt, err)
			}
		}
	}
}
