package runtimes_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// closedLate is a runtime on a device of the caller's, whose calls are counted,
// that was closed while the device was at work and the guard held blocks.
func closedLate(t *testing.T) (*fencepost.Runtime, *drivertest.Faults) {
	t.Helper()
	device, err := sim.Open(sim.Config{Bytes: 64 << 20})
	e2e.Succeed(t, "open", err)
	faults := drivertest.NewFaults(device)
	rt := e2e.OpenDirty(t, fencepost.Config{Driver: faults, Guard: "hunt", Incidents: t.TempDir()})
	s := e2e.Lease(t, rt, "busy")
	blocks := make([]core.Block, 20)
	for i := range blocks {
		blocks[i] = e2e.Allocate(t, rt, 4096, s.ID(), "a")
	}
	release, err := device.Hold(s.Handle())
	e2e.Succeed(t, "hold", err)
	t.Cleanup(func() {
		release()
		_ = s.Release()
		e2e.Succeed(t, "the streams", rt.Streams().Close(context.Background()))
		e2e.Succeed(t, "the device", device.Close())
	})
	e2e.Free(t, rt, blocks...)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	faults.FailEvery(drivertest.MemFreeAsync, driver.Unknown) // so that the guard keeps its blocks, if frees are calls of the driver
	if _, err := rt.Close(ended); err == nil {
		t.Error("closed although the device was at work and a stream leased")
	}
	faults.Clear()
	return rt, faults
}

// What is called after a Close that ran out of time is refused as closed, and
// the device is not asked.
func TestNothingReachesTheDeviceAfterAnUnfinishedClose(t *testing.T) {
	rt, faults := closedLate(t)
	held := rt.Guard().GuardStats().Quarantine
	mode := "off"
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := faults.Total()
	calls := map[string]func() error{
		"SwitchGuard": func() error {
			return rt.SwitchGuard(t.Context(), fencepost.GuardChange{Mode: (*fencepost.GuardMode)(&mode)})
		},
		"HuntTags":    func() error { return rt.SwitchGuard(t.Context(), fencepost.GuardChange{HuntTags: &[]core.Tag{"a"}}) },
		"Apply":       func() error { return rt.Guard().Apply(t.Context(), debugguard.Setting{Mode: debugguard.Off}) },
		"SetMode":     func() error { return rt.Guard().SetMode(t.Context(), debugguard.Ledger) },
		"TrimPool":    func() error { return rt.TrimPool(t.Context(), 0) },
		"Drift":       func() error { _, err := rt.Drift(); return err },
		"PoolStats":   func() error { _, err := rt.PoolStats(); return err },
		"Drain":       func() error { return rt.Drain(ended) },
		"ReapPending": func() error { return rt.ReapPending(t.Context()) },
		"Dump":        func() error { _, err := rt.Dump(t.Context()); return err },
		"Allocate":    func() error { _, err := rt.Allocate(t.Context(), core.Request{Bytes: 1}); return err },
		"Reserve":     func() error { _, err := rt.Reserve(t.Context(), 1, "a"); return err },
		"Alloc":       func() error { _, err := cuda.Alloc[byte](t.Context(), rt.Memory(), 1, cuda.AllocOptions{}); return err },
		"AllocHost":   func() error { _, err := cuda.AllocHost[byte](rt.Memory(), 1); return err },
		"Acquire":     func() error { _, err := rt.Streams().Acquire(t.Context(), "late"); return err },
		"TryAcquire":  func() error { _, err := rt.Streams().TryAcquire(t.Context(), "late"); return err },
		"Adopt":       func() error { _, err := rt.Streams().Adopt(77, "late"); return err },
		"PrepareUse":  func() error { _, err := rt.Core().PrepareUse(t.Context(), core.UseRequest{}); return err },
		"RecordUse": func() error {
			return rt.Core().RecordBlockUse(t.Context(), core.BlockID{Generation: 1}, core.DefaultStream)
		},
		"Launch": func() error {
			return rt.Launch(t.Context(), core.DefaultStream, nil, func(context.Context) error { return nil })
		},
		"Device memory": func() error { rt.DeviceMemory(); rt.GuardStatus(); return core.ErrClosed },
	}
	for what, call := range calls {
		if err := call(); !errors.Is(err, core.ErrClosed) {
			t.Errorf("%s: got %v, want %v", what, err, core.ErrClosed)
		}
	}
	if w := e2e.Request(rt.GuardHandler(), http.MethodPost, "/debug/gpumem/guard", "mode=off", "Content-Type", e2e.FormType); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a switch over HTTP: %d %s", w.Code, w.Body)
	}
	time.Sleep(20 * time.Millisecond) // for what goes on in the background
	if n := faults.Total() - before; n != 0 {
		t.Errorf("%d calls of the driver after Close", n)
	}
	if now := rt.Guard().GuardStats().Quarantine; now != held || held.Blocks == 0 && rt.Core().Resource().Features()&core.OrderedRelease == 0 {
		t.Errorf("quarantine held %+v at the end of Close, and %+v now", held, now)
	}
}

// Who overlooks the error of Open has no runtime, and is told so.
func TestARuntimeThatIsNotThereIsAnError(t *testing.T) {
	var rt *fencepost.Runtime
	mode := "off"
	_, closeErr := rt.Close(t.Context())
	_, dumpErr := rt.Dump(t.Context())
	_, statsErr := rt.PoolStats()
	for what, err := range map[string]error{"Close": closeErr, "Dump": dumpErr, "PoolStats": statsErr, "TrimPool": rt.TrimPool(t.Context(), 0),
		"Drain": rt.Drain(t.Context()), "ReapPending": rt.ReapPending(t.Context()), "SwitchGuard": rt.SwitchGuard(t.Context(), fencepost.GuardChange{Mode: (*fencepost.GuardMode)(&mode)})} {
		expect.Error(t, err, core.ErrInvalidRequest, what)
	}
}

// The refusals of a device that was closed are of what is closed, whoever asks.
func TestAClosedDeviceRefusesAsClosed(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{})
	l := e2e.Lease(t, rt, "kept")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = rt.Close(ended) // a stream is leased
	_, memErr := rt.Driver().MemAlloc(64)
	for what, err := range map[string]error{"the driver": memErr, "Synchronize": rt.Streams().Synchronize(t.Context(), l.ID())} {
		if !errors.Is(err, core.ErrClosed) {
			t.Errorf("%s: got %v, want %v", what, err, core.ErrClosed)
		}
	}
	if err := driver.NewError("cuCtxSynchronize", driver.IllegalAddress); errors.Is(err, core.ErrClosed) {
		t.Error("a lost device is not a closed one")
	}
}
