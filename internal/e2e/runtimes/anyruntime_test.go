package runtimes_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// runtimeTakers are all calls that take a runtime.
func runtimeTakers(t *testing.T, rt *fencepost.Runtime) map[string]func(core.AnyRuntime) error {
	t.Helper()
	ctx, on := t.Context(), e2e.Lease(t, rt, "runtime")
	e2e.Succeed(t, "registering", e2e.Simulated(rt).RegisterModule("nothing", sim.Kernel{Name: "nothing", Run: func(*sim.Exec) {}}))
	module, err := cuda.LoadModule(rt.Driver(), driver.Image{Name: "nothing"})
	e2e.Succeed(t, "loading", err)
	kernel, err := module.Kernel("nothing")
	e2e.Succeed(t, "looking the kernel up", err)
	graph, err := on.Capture(ctx, "graph", nil, func(s driver.Stream) error { return kernel.Enqueue(s, cuda.Blocks1D(1, 1)) })
	e2e.Succeed(t, "capturing", err)
	t.Cleanup(func() { e2e.Succeed(t, "giving the code back", errors.Join(graph.Close(), module.Unload())) })
	return map[string]func(core.AnyRuntime) error{
		"NewMemoryManager": func(taken core.AnyRuntime) error {
			_, err := cuda.NewMemoryManager(rt.Driver(), rt.Streams(), taken)
			return err
		},
		"Kernel.Launch": func(taken core.AnyRuntime) error { return kernel.Launch(ctx, taken, on, cuda.Blocks1D(1, 1), nil) },
		"Graph.Launch":  func(taken core.AnyRuntime) error { return graph.Launch(ctx, taken, on) },
		"LaunchRecorder.Preflight": func(taken core.AnyRuntime) error {
			rec := core.NewStrictRecorder(on.ID())
			return errors.Join(rec.Preflight(ctx, taken), rec.Abort(ctx, rt))
		},
		"LaunchRecorder.Commit": func(taken core.AnyRuntime) error { return core.NewStrictRecorder(on.ID()).Commit(ctx, taken) },
		"LaunchRecorder.Abort":  func(taken core.AnyRuntime) error { return core.NewStrictRecorder(on.ID()).Abort(ctx, taken) },
	}
}

func TestWhateverTakesARuntimeTakesWhatOpenReturns(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	for name, take := range runtimeTakers(t, rt) {
		e2e.Succeed(t, name, take(rt))
		e2e.Succeed(t, name+" with the runtime alone", take(rt.Core()))
	}
}

func TestARuntimeThatIsNilIsATypedError(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	for name, take := range runtimeTakers(t, rt) {
		for what, none := range map[string]core.AnyRuntime{"nil": nil, "a nil core.Runtime": (*core.Runtime)(nil), "a nil Runtime": (*fencepost.Runtime)(nil)} {
			bad, ok := errors.AsType[*core.InvalidRequestError](take(none))
			if !ok || bad.Op != name || bad.Field != "runtime" || bad.Reason == "" {
				t.Errorf("%s with %s: %+v", name, what, bad)
			}
		}
	}
	var none *cuda.Kernel
	for field, err := range map[string]error{
		"kernel":  none.Launch(t.Context(), rt, nil, cuda.Grid{}, nil),
		"lease":   new(cuda.Kernel).Launch(t.Context(), rt, nil, cuda.Grid{}, nil),
		"driver":  e2e.ErrorOf(cuda.NewMemoryManager(nil, rt.Streams(), rt)),
		"streams": e2e.ErrorOf(cuda.NewMemoryManager(rt.Driver(), nil, rt)),
	} {
		if bad, ok := errors.AsType[*core.InvalidRequestError](err); !ok || bad.Field != field {
			t.Errorf("without a %s: %v", field, err)
		}
	}
}
