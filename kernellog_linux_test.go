package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// pipedLog is what the test writes the kernel's log to. An Xid is waited for as long as there is none.
func pipedLog(t *testing.T) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kmsg")
	must.Do(t, syscall.Mkfifo(path, 0o600))
	log := must.Get(os.OpenFile(path, os.O_RDWR, 0))(t)
	t.Cleanup(func() { must.Do(t, log.Close()) })
	fencepost.KernelLogAt(t, path, time.Hour)
	return log
}

// lose loses the runtime's device.
func lose(t *testing.T, rt *fencepost.Runtime) {
	t.Helper()
	e2e.Simulated(rt).LoseContext(driver.IllegalAddress)
	if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 1 << 22}); !errors.Is(err, core.ErrSticky) {
		t.Fatal(err)
	}
}

// closes ends a runtime whose device is lost, while ctx lasts.
func closes(ctx context.Context, t *testing.T, rt *fencepost.Runtime) {
	t.Helper()
	if _, err := rt.Close(ctx); err != nil && !errors.Is(err, core.ErrSticky) && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestALostDeviceIsToldWithItsXid(t *testing.T) {
	log := pipedLog(t)
	t.Setenv("FENCEPOST_KERNEL_LOG", "1")
	rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim}))(t)
	if got := rt.GuardStatus().KernelLog; got != "read" {
		t.Fatalf("the kernel's log is %s", got)
	}
	lose(t, rt)
	bus, _, _ := strings.Cut(rt.DeviceChoice().PCIBusID, ".")
	_, err := fmt.Fprintf(log, "4,1,%d,-;NVRM: Xid (PCI:%s): 31, pid='<unknown>', name=<unknown>, MMU Fault\n", uint64(1)<<50, bus) // later than now
	must.Do(t, err)
	closes(t.Context(), t, rt)
	if f := e2e.Single(t, rt, names.FindingStickyError); !strings.Contains(f.Text, "Xid 31 of this device (application): an access of memory") || !strings.Contains(f.Text, "MMU Fault") {
		t.Errorf("it is told: %s", f.Text)
	}
}

// A Close without time ends the waiting for an Xid.
func TestALostDeviceIsToldThoughThereIsNoTimeForItsXid(t *testing.T) {
	pipedLog(t)
	told := make(chan core.Finding, 1)
	rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, KernelLog: true, OnFinding: func(f core.Finding) { told <- f }}))(t)
	lose(t, rt)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	closes(ctx, t, rt)
	if f := <-told; f.Kind != names.FindingStickyError || !strings.Contains(f.Text, "no Xid") {
		t.Errorf("it is told: %v", f)
	}
}

func TestWhereTheKernelsLogIsNotReadALossIsToldAtOnce(t *testing.T) {
	fencepost.KernelLogAt(t, filepath.Join(t.TempDir(), "none"), time.Hour)
	for state, cfg := range map[string]fencepost.Config{"off": {}, "not readable: ": {KernelLog: true}} {
		cfg.Device = fencepost.Sim
		cfg.Findings.Logger, _ = e2e.LogOf()
		rt := must.Get(fencepost.Open(t.Context(), cfg))(t)
		if got := rt.GuardStatus().KernelLog; !strings.HasPrefix(got, state) {
			t.Errorf("the kernel's log is %s", got)
		}
		lose(t, rt)
		if f := e2e.Single(t, rt, names.FindingStickyError); strings.Contains(f.Text, "Xid") {
			t.Errorf("it is told: %s", f.Text)
		}
		closes(t.Context(), t, rt)
	}
}
