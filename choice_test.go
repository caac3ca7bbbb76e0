package fencepost_test

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/fakecuda"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// fakeGPU puts a driver library of the test's making in the place of the
// machine's.
func fakeGPU(t *testing.T, settings map[string]int) string {
	t.Helper()
	library, err := fakecuda.Build(t.TempDir(), settings)
	if errors.Is(err, fakecuda.ErrCannotBuild) {
		t.Skip(err)
	}
	e2e.Succeed(t, "building the fake driver", err)
	fencepost.LoadLibraryFrom(t, library)
	return library
}

func TestAutoTakesAGPUThatWorks(t *testing.T) {
	fakeGPU(t, nil)
	rt := e2e.Open(t, fencepost.Config{Ordinal: 1})
	if got, want := rt.String(), "telemetry(debugguard(budget(logging(pool(cuda:1)))))"; got != want {
		t.Errorf("the stack is %s, want %s", got, want)
	}
	if got := rt.DeviceChoice(); got.String() != "cuda:1 Fake GPU" || got.Reason != "found" {
		t.Errorf("the device is %+v", got)
	}
	e2e.Free(t, rt, e2e.Allocate(t, rt, 1<<20, core.DefaultStream, "a"))
}

func TestWithoutAGPUAutoSimulatesAndSaysWhy(t *testing.T) {
	for reason, settings := range map[string]map[string]int{
		"no CUDA driver here: no/libcuda.so.1 not found":        nil,
		"no CUDA driver here: the driver sees no GPU":           {"devices": 0},
		"CUDA_ERROR_NO_DEVICE":                                  {"init": 100},
		"CUDA_ERROR_STUB_LIBRARY":                               {"init": 34},
		"maps no memory and has no stream-ordered memory pools": {"pools": 0, "vmm": 0},
	} {
		t.Run(reason, func(t *testing.T) {
			if settings != nil {
				fakeGPU(t, settings)
			}
			got := e2e.Open(t, fencepost.Config{}).DeviceChoice()
			if got.Kind != fencepost.Sim || !strings.Contains(got.Reason, reason) || !strings.HasPrefix(got.String(), "sim:0 (") {
				t.Errorf("the device is %v", got)
			}
		})
	}
}

// A GPU that was asked for and cannot be had is never replaced, and neither is
// one that is there and broken.
func TestAGPUThatCannotBeUsedIsAnError(t *testing.T) {
	for _, c := range []struct {
		device   fencepost.DeviceKind
		settings map[string]int
		noCUDA   bool
		says     string
	}{
		{fencepost.CUDA, map[string]int{"devices": 0}, true, "CUDA_VISIBLE_DEVICES"},
		{fencepost.CUDA, map[string]int{"init": 100}, true, "the driver sees no GPU"},
		{fencepost.CUDA, map[string]int{"pools": 0, "vmm": 0}, false, "FENCEPOST_RESOURCE=direct"},
		{fencepost.CUDA, map[string]int{"version": 11030}, true, "at least 11.4 is needed"},
		{fencepost.Auto, map[string]int{"version": 11030}, true, "FENCEPOST_DEVICE=sim"},
		{fencepost.Auto, map[string]int{"init": 999}, true, "FENCEPOST_DEVICE=sim"},
		{fencepost.Auto, map[string]int{"init": 802}, true, "fabricmanager"},
	} {
		fakeGPU(t, c.settings)
		rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: c.device})
		if rt != nil || errors.Is(err, libcuda.ErrNoDriver) != c.noCUDA || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s with %v: %v, want an error that says %q", c.device, c.settings, err, c.says)
		}
	}
	if !errors.Is(&libcuda.LoadError{}, libcuda.ErrNoDriver) {
		t.Error("a LoadError does not match ErrNoDriver")
	}
}

func TestAnOrdinalBeyondTheDriversIsRefused(t *testing.T) {
	for devices, says := range map[int]string{1: "1 device, number 0", 2: "2 devices, 0 to 1"} {
		fakeGPU(t, map[string]int{"devices": devices})
		_, err := fencepost.Open(t.Context(), fencepost.Config{Ordinal: 2})
		invalid, ok := errors.AsType[*core.InvalidRequestError](err)
		if !ok || invalid.Field != "Ordinal" || !strings.Contains(invalid.Reason, says) {
			t.Errorf("%d devices: %v, want a refusal that says %q", devices, err, says)
		}
	}
}

func TestAGPUWithoutPoolsServesTheOtherBackends(t *testing.T) {
	fakeGPU(t, map[string]int{"pools": 0})
	for _, backend := range []fencepost.Backend{fencepost.Direct, fencepost.Pool, ""} {
		t.Run(string(backend), func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Resource: backend})
			demandStack(t, rt, string(cmp.Or(backend, fencepost.Pool))+"(cuda:0)")
			e2e.Free(t, rt, e2e.Allocate(t, rt, 1<<20, core.DefaultStream, "a"))
		})
	}
}

func demandStack(t *testing.T, rt *fencepost.Runtime, backend string) {
	t.Helper()
	if got, want := rt.String(), "telemetry(debugguard(budget(logging("+backend+"))))"; got != want {
		t.Errorf("the stack is %s, want %s", got, want)
	}
}

// A zero Config takes the pool of the runtime's own where the device maps memory. A program that
// configures the driver's pool, or names a backend, keeps it.
func TestTheDeviceAndTheConfigDecideOnTheBackend(t *testing.T) {
	on := func(settings map[string]int, backend string, cfg fencepost.Config) {
		t.Helper()
		cfg.Device = fencepost.Sim
		if settings != nil {
			fakeGPU(t, settings)
			cfg.Device = fencepost.CUDA
		}
		rt := e2e.OpenDirty(t, cfg)
		demandStack(t, rt, backend)
		must.Get(rt.Close(t.Context()))(t)
	}
	on(nil, "pool(sim:0)", fencepost.Config{})
	on(nil, "async(sim:0)", fencepost.Config{Resource: fencepost.Async})
	on(nil, "async(sim:0)", fencepost.Config{Async: cuda.AsyncConfig{ReleaseThreshold: 1}})
	on(nil, "pool(sim:0)", fencepost.Config{Pool: cuda.PoolConfig{TrimAfter: 1}, Async: cuda.AsyncConfig{ReleaseThreshold: 1}})
	on(map[string]int{"vmm": 0}, "async(cuda:0)", fencepost.Config{})
	t.Setenv("FENCEPOST_RESOURCE", "async")
	on(nil, "async(sim:0)", fencepost.Config{})
}

// The error for a device that lacks what a backend needs names a backend that opens there.
func TestTheAdviceOnABackendOpens(t *testing.T) {
	for _, device := range []map[string]int{{"pools": 0, "vmm": 0}, {"pools": 0}, {"vmm": 0}} {
		fakeGPU(t, device)
		refused := 0
		for _, backend := range []fencepost.Backend{"", fencepost.Pool, fencepost.Async, fencepost.Direct} {
			cfg := fencepost.Config{Device: fencepost.CUDA, Resource: backend}
			rt, err := fencepost.Open(t.Context(), cfg)
			if err == nil {
				must.Get(rt.Close(t.Context()))(t)
				continue
			}
			refused++
			_, advice, _ := strings.Cut(err.Error(), "FENCEPOST_RESOURCE=")
			advice, _, _ = strings.Cut(advice, ")")
			cfg.Resource = fencepost.Backend(advice)
			if errors.Is(err, libcuda.ErrNoDriver) || !errors.Is(err, errors.ErrUnsupported) ||
				cfg.Resource == fencepost.Direct && len(device) < 2 {
				t.Errorf("%q on a device with %v: %v", backend, device, err)
			}
			must.Get(must.Get(fencepost.Open(t.Context(), cfg))(t).Close(t.Context()))(t)
		}
		if refused == 0 {
			t.Errorf("no backend was refused on a device with %v", device)
		}
	}
}

func TestAutoSimulatesWhereTheBackendHasNoGPU(t *testing.T) {
	fakeGPU(t, map[string]int{"vmm": 0})
	if got := e2e.Open(t, fencepost.Config{Resource: fencepost.Pool}).DeviceChoice(); got.Kind != fencepost.Sim || !strings.Contains(got.Reason, "maps no memory") {
		t.Errorf("the device is %v", got)
	}
}

// The device counts, and not the handle: the library makes a new one for each
// Open.
func TestASecondRuntimeOnOneGPUIsRefused(t *testing.T) {
	library := fakeGPU(t, nil)
	first := e2e.Open(t, fencepost.Config{})
	if _, err := fencepost.Open(t.Context(), fencepost.Config{}); !errors.Is(err, core.ErrInvalidRequest) || !strings.Contains(err.Error(), "share it") {
		t.Errorf("the second runtime: %v, want a refusal", err)
	}
	l, err := libcuda.LoadPath(library)
	e2e.Succeed(t, "loading", err)
	own, err := l.Open(0)
	e2e.Succeed(t, "opening", err)
	defer func() { e2e.Succeed(t, "closing", own.Close()) }()
	if _, err := fencepost.Open(t.Context(), fencepost.Config{Driver: own}); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("a runtime on a driver of the caller's: %v, want a refusal", err)
	}
	e2e.Open(t, fencepost.Config{Ordinal: 1}) // another device
	e2e.Free(t, first, e2e.Allocate(t, first, 64, core.DefaultStream, "a"))
}

// What others hold is not admitted, and the driver keeps something to grow.
func TestTheDefaultBudgetOfAGPUIsLessThanWhatIsFree(t *testing.T) {
	fakeGPU(t, nil)
	rt := e2e.Open(t, fencepost.Config{})
	available, total, err := rt.Driver().MemInfo()
	e2e.Succeed(t, "memory info", err)
	if got := rt.Stats().Limit; got >= available || available > total || got < available-available/32-2<<20 {
		t.Errorf("a budget of %d with %d of %d free", got, available, total)
	}
	if got := e2e.Open(t, fencepost.Config{Ordinal: 1, Budget: 1 << 20}).Stats().Limit; got != 1<<20 {
		t.Errorf("a budget of %d, want the configured one", got)
	}
}
