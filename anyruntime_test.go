package fencepost_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// runtimeTakers are all calls that take a runtime.
func runtimeTakers(t *testing.T, rt *fencepost.Runtime) map[string]func(core.AnyRuntime) error {
	t.Helper()
	ctx, on := t.Context(), lease(t, rt, "runtime")
	succeed(t, "registering", simulated(rt).RegisterModule("nothing", sim.Kernel{Name: "nothing", Run: func(*sim.Exec) {}}))
	module, err := cuda.LoadModule(rt.Driver(), driver.Image{Name: "nothing"})
	succeed(t, "loading", err)
	kernel, err := module.Kernel("nothing")
	succeed(t, "looking the kernel up", err)
	graph, err := on.Capture(ctx, "graph", nil, func(s driver.Stream) error { return kernel.Enqueue(s, cuda.Blocks1D(1, 1)) })
	succeed(t, "capturing", err)
	t.Cleanup(func() { succeed(t, "giving the code back", errors.Join(graph.Close(), module.Unload())) })
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
	rt := open(t, fencepost.Config{})
	for name, take := range runtimeTakers(t, rt) {
		succeed(t, name, take(rt))
		succeed(t, name+" with the runtime alone", take(rt.Runtime))
	}
}

func TestARuntimeThatIsNilIsATypedError(t *testing.T) {
	rt := open(t, fencepost.Config{})
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
		"driver":  errorOf(cuda.NewMemoryManager(nil, rt.Streams(), rt)),
		"streams": errorOf(cuda.NewMemoryManager(rt.Driver(), nil, rt)),
	} {
		if bad, ok := errors.AsType[*core.InvalidRequestError](err); !ok || bad.Field != field {
			t.Errorf("without a %s: %v", field, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }
