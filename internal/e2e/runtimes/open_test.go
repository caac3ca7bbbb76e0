package runtimes_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

func TestOpenWithoutConfigBuildsTheDefaultStack(t *testing.T) {
	rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{}))(t)
	t.Cleanup(func() { _, _ = rt.Close(context.Background()) })
	if got, want := rt.String(), "telemetry(debugguard(budget(logging(pool(sim:0)))))"; got != want {
		t.Errorf("the stack is %s, want %s", got, want)
	}
	if got := rt.Stats().Limit; got != sim.DefaultBytes {
		t.Errorf("the budget is %d, want the device's %d", got, sim.DefaultBytes)
	}
	if got := rt.Guard().Mode(); got != debugguard.Sample {
		t.Errorf("the guard is %v, want sample", got)
	}
	if got := rt.Streams().Stats().Max; got != cuda.DefaultMaxStreams {
		t.Errorf("%d stream leases, want %d", got, cuda.DefaultMaxStreams)
	}
	if got := rt.History().Cap(); got != logging.DefaultRingSize {
		t.Errorf("a history of %d records, want %d", got, logging.DefaultRingSize)
	}
	want := core.UseTracking | core.StreamOrdered | core.Reservations | core.DeviceChecks | core.Isolation | core.OrderedRelease
	if got := rt.Core().Resource().Features(); got != want {
		t.Errorf("features %v, want %v", got, want)
	}
	if h := rt.Health(); !h.OK {
		t.Errorf("not healthy: %+v", h)
	}
	if rt.Ordinal() != 0 || rt.Findings().Total() != 0 || rt.Memory().Runtime() != rt.Core() {
		t.Errorf("ordinal %d, %d findings", rt.Ordinal(), rt.Findings().Total())
	}
}

func TestOpenBuildsWhatTheConfigSays(t *testing.T) {
	ring := logging.NewRing(16)
	rt := e2e.Open(t, fencepost.Config{
		Device: fencepost.Sim, Ordinal: 3, Resource: fencepost.Direct, Streams: 2, Budget: 1 << 20, Guard: "ledger", History: 5,
		Sim: sim.Config{Bytes: 8 << 20, Name: "bench"}, LogLevel: logging.Uses, LogSinks: []logging.Sink{ring},
	})
	if got, want := rt.String(), "telemetry(debugguard(budget(logging(direct(sim:3)))))"; got != want {
		t.Errorf("the stack is %s, want %s", got, want)
	}
	props, err := rt.Driver().Properties()
	if err != nil || props.Name != "bench" {
		t.Errorf("properties %+v, %v", props, err)
	}
	if rt.Stats().Limit != 1<<20 || rt.Streams().Stats().Max != 2 || rt.History().Cap() != 8 || rt.Guard().Mode() != debugguard.Ledger {
		t.Errorf("limit %d, %d leases, %d records, guard %v", rt.Stats().Limit, rt.Streams().Stats().Max, rt.History().Cap(), rt.Guard().Mode())
	}
	if rt.Core().SupportsBlockUseTracking() {
		t.Error("a stack over direct says that it tracks uses")
	}
	e2e.Free(t, rt, e2e.Allocate(t, rt, 64, core.DefaultStream, "a"))
	if ring.Total() < 3 { // allocate, deallocate, release
		t.Errorf("the caller's sink got %d records", ring.Total())
	}
	pool, err := rt.PoolStats()
	if pool.Reserved != 0 || pool.Used != 0 || err != nil {
		t.Errorf("a direct stack has a pool: %d %d %v", pool.Reserved, pool.Used, err)
	}
}

func TestOpenBuildsAStackOverThePoolOfTheRuntimesOwn(t *testing.T) {
	t.Setenv("FENCEPOST_RESOURCE", "pool")
	rt := e2e.OpenDirty(t, fencepost.Config{Sim: sim.Config{Bytes: 64 << 20}, Pool: cuda.PoolConfig{Limit: 8 << 20, ReapInterval: -1}})
	if got, want := rt.String(), "telemetry(debugguard(budget(logging(pool(sim:0)))))"; got != want {
		t.Errorf("the stack is %s, want %s", got, want)
	}
	expect.Success(t, e2e.Life(t.Context(), rt))
	kept := e2e.Allocate(t, rt, 3<<20, core.DefaultStream, "kept")
	if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 6 << 20, Tag: "beyond"}); !errors.Is(err, core.ErrOutOfMemory) || !strings.Contains(err.Error(), "limit") {
		t.Errorf("allocated beyond the pool's limit: %v", err)
	}
	pool, err := rt.PoolStats()
	if pool.Reserved == 0 || pool.Reserved > 8<<20 || pool.ReservedHigh < pool.Reserved || pool.Used < 3<<20 || err != nil {
		t.Errorf("the pool has %d bytes, at most %d, and %d in use: %v", pool.Reserved, pool.ReservedHigh, pool.Used, err)
	}
	e2e.Free(t, rt, kept)
	expect.Success(t, errors.Join(rt.Drain(t.Context()), rt.TrimPool(t.Context(), 0)))
	if st := rt.Stats(); st.Reserved != 0 {
		t.Errorf("%d bytes stay after a trim", st.Reserved)
	}
}

func TestOpenRefusesConfigsThatMeanNothing(t *testing.T) {
	for _, c := range []struct {
		field string
		cfg   fencepost.Config
	}{
		{"Device", fencepost.Config{Device: "tpu"}},
		{"Resource", fencepost.Config{Resource: "managed"}},
		{"Ordinal", fencepost.Config{Ordinal: -1}},
		{"Ordinal", fencepost.Config{Ordinal: core.MaxOrdinals}},
		{"Sim.Bytes", fencepost.Config{Sim: sim.Config{Bytes: sim.Granule + 1}}},
		{"Sim.UUID", fencepost.Config{Sim: sim.Config{UUID: "mine"}}},
		{"Sim.Bytes", fencepost.Config{Sim: sim.Config{Bytes: math.MaxUint64 &^ (sim.Granule - 1)}}},
		{"Streams", fencepost.Config{Streams: -1}},
		{"Streams", fencepost.Config{Streams: math.MaxInt32 + 1}},
		{"Guard", fencepost.Config{Guard: "paranoid"}},
		{"Guard", fencepost.Config{Guard: "sample:0"}},
		{"Guard", fencepost.Config{Guard: "hunt:64"}},
		{"RedZone", fencepost.Config{GuardConfig: debugguard.Config{Advanced: debugguard.Advanced{RedZone: 1 << 31}}}},
		{"History", fencepost.Config{History: -1}},
		{"History", fencepost.Config{History: math.MaxInt}},
		{"Level", fencepost.Config{LogLevel: 9}},
		{"Level", fencepost.Config{TraceLevel: telemetry.LevelOff + 1}},
		{"CloseTimeout", fencepost.Config{CloseTimeout: -time.Second}},
	} {
		rt, err := fencepost.Open(t.Context(), c.cfg)
		var invalid *core.InvalidRequestError
		if rt != nil || !errors.As(err, &invalid) || invalid.Field != c.field || invalid.Reason == "" {
			t.Errorf("%+v: %v, %v; want a refusal that names %s", c.cfg, rt, err, c.field)
		}
	}
}

func TestOpenSaysThatThereIsNoGPUBackend(t *testing.T) {
	if _, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.CUDA}); !errors.Is(err, libcuda.ErrNoDriver) {
		t.Errorf("got %v, want %v", err, libcuda.ErrNoDriver)
	}
}

func TestASecondRuntimeOnOneDriverIsRefused(t *testing.T) {
	device, err := sim.Open(sim.Config{})
	must.Do(t, err)
	t.Cleanup(func() { // behind the runtimes' ends
		expect.Success(t, device.Close())
	})
	cfg := fencepost.Config{Driver: device}
	first := e2e.OpenDirty(t, cfg)
	if _, err := fencepost.Open(t.Context(), cfg); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("the second runtime: %v, want a refusal", err)
	}
	wrapped := fencepost.Config{Driver: drivertest.NewFaults(device)}
	if _, err := fencepost.Open(t.Context(), wrapped); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("the same device in a wrapper: %v, want a refusal", err)
	}
	e2e.Free(t, first, e2e.Allocate(t, first, 64, core.DefaultStream, "a")) // the refusal took nothing from the first
	if _, err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	again := e2e.Open(t, cfg)
	e2e.Free(t, again, e2e.Allocate(t, again, 64, core.DefaultStream, "a"))
}

// Every driver call that Open makes fails once: each failure is told, and the
// device holds nothing afterwards.
func TestAFailedOpenLeavesNothingBehind(t *testing.T) {
	for call := uint64(1); ; call++ {
		device, err := sim.Open(sim.Config{})
		must.Do(t, err)
		device.StickyAt(call, 700)
		rt, err := fencepost.Open(t.Context(), fencepost.Config{Driver: device})
		device.StickyAt(0, 0)
		if rt != nil {
			_, err = rt.Close(t.Context())
		}
		if err != nil && !errors.Is(err, core.ErrSticky) {
			t.Errorf("call %d: %v, want the sticky error", call, err)
		}
		expect.Success(t, device.Close())
		if rt != nil {
			if call < 4 {
				t.Errorf("Open made only %d calls: the test failed none of them", call-1)
			}
			return
		}
	}
}

// Code of the program's that panics while Open calls it, or ends the goroutine, leaves nothing
// behind: the device may be opened again.
func TestAnOpenThatIsBrokenOffLeavesNothing(t *testing.T) {
	for end, do := range map[string]func(){"panic": func() { panic("the program's own") }, "Goexit": runtime.Goexit} {
		layer := func(up core.Resource) (core.Resource, error) { do(); return up, nil }
		for name, cfg := range map[string]fencepost.Config{
			"AroundBudget":  {Layers: fencepost.Layers{AroundBudget: []core.Layer{layer}}},
			"AroundGuard":   {Layers: fencepost.Layers{AroundGuard: []core.Layer{layer}}},
			"TelemetryLost": {TelemetryLost: func() uint64 { do(); return 0 }},
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				device := must.Get(sim.Open(sim.Config{Bytes: 64 << 20}))(t)
				empty := device.Books()
				cfg.Driver = device
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					if rt, err := fencepost.Open(t.Context(), cfg); err == nil { // the panic of code that watches is left out
						_, err = rt.Close(t.Context())
						must.Do(t, err)
					}
				}()
				<-ended
				if left := device.Books(); left != empty {
					t.Errorf("it left %+v", left)
				}
				rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Driver: device}))(t)
				_, err := rt.Close(t.Context())
				must.Do(t, err, device.Close())
			})
		}
	}
}

// A Close or TrimPool without a context is refused, and the runtime is as open as before.
func TestANilContextClosesNothing(t *testing.T) {
	rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim}))(t)
	var none context.Context
	_, err := rt.Close(none)
	expect.Error(t, err, core.ErrInvalidRequest, "Close")
	expect.Error(t, rt.TrimPool(none, 0), core.ErrInvalidRequest, "TrimPool")
	must.Do(t, rt.TrimPool(t.Context(), 0))
	_, err = rt.Close(t.Context())
	must.Do(t, err)
}
