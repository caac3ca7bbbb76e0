//go:build linux && (amd64 || arm64)

package nvml_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-gpu/fencepost/internal/nvml"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// fake compiles the stand-in for the library.
func fake(t *testing.T, flags ...string) string {
	t.Helper()
	library := filepath.Join(t.TempDir(), nvml.Library)
	args := slices.Concat(flags, []string{"-shared", "-fPIC", "-o", library, "testdata/fakenvml.c"})
	out, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no C compiler here")
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return library
}

func TestReadTellsWhatTheLibrarySays(t *testing.T) {
	got := must.Get(nvml.Read("no such library", fake(t)))(t)
	want := nvml.Reading{DriverVersion: "580.95.05", GPUs: []nvml.GPU{
		{Index: 0, Name: "NVIDIA H200", UUID: "GPU-11111111-2222-3333-4444-555555555555", PCIBusID: "0000:19:00.0",
			MIG: "enabled", TotalBytes: 150754820096, UsedBytes: 754820096, Processes: 3},
		{Index: 1, PCIBusID: "0000:ab:00.0", Processes: -1},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the reading differs (-want +got):\n%s", diff)
	}
}

func TestOlderDriversCountProcessesToo(t *testing.T) {
	for name, want := range map[string]int{"nvmlDeviceGetComputeRunningProcesses_v2": 3, "unknownCall": -1} {
		got, err := nvml.Read(fake(t, "-DPROCESSES="+name))
		if err != nil || len(got.GPUs) != 2 || got.GPUs[0].Processes != want {
			t.Errorf("with %s: %+v, %v; want %d processes", name, got.GPUs, err, want)
		}
	}
}

func TestReadSaysWhyThereIsNothing(t *testing.T) {
	if _, err := nvml.Read("no such library"); !errors.Is(err, nvml.ErrUnavailable) || !strings.Contains(err.Error(), "no such library") {
		t.Errorf("without the library: %v", err)
	}
	library := fake(t)
	t.Setenv("FAKENVML", "uninitialized")
	if _, err := nvml.Read(library); !errors.Is(err, nvml.ErrUnavailable) || !strings.Contains(err.Error(), "Driver Not Loaded") {
		t.Errorf("without the kernel module: %v", err)
	}
}

func TestDevicesAreFoundByTheirPCIAddressHoweverWritten(t *testing.T) {
	r := nvml.Reading{GPUs: []nvml.GPU{{Index: 4, PCIBusID: "0000:19:00.0"}, {Index: 5}}}
	for id, want := range map[string]bool{"0000:19:00.0": true, "00000000:19:00.0": true, "0000:1A:00.0": false, "": false} {
		if g, ok := r.ByBusID(id); ok != want || ok && g.Index != 4 {
			t.Errorf("%q: %+v, %v", id, g, ok)
		}
	}
}

func TestLimitsOfControlGroupsAreTold(t *testing.T) {
	const uuid = "GPU-11111111-2222-3333-4444-555555555555"
	library := fake(t, "-DLIMITS")
	l := nvml.OpenLimits(uuid, "no such library", library)
	if l == nil {
		t.Fatal("the library was not opened")
	}
	defer l.Close()
	if hard, used, ok := l.Of("/limited"); !ok || hard != 30000<<20 || used != 1000000 {
		t.Errorf("%d bytes, %d used, %v", hard, used, ok)
	}
	for _, group := range []string{"/free", "/unknown", "", "/a\x00b"} {
		if hard, _, ok := l.Of(group); ok {
			t.Errorf("%q has a limit of %d bytes", group, hard)
		}
	}
	if nvml.OpenLimits("GPU-of-another-machine", library) != nil || nvml.OpenLimits(uuid, "no such library") != nil {
		t.Error("limits of what is not there")
	}
	t.Setenv("FAKENVML", "uninitialized")
	if nvml.OpenLimits(uuid, library) != nil {
		t.Error("limits without the kernel module")
	}
}

func TestOlderDriversTellNoLimits(t *testing.T) {
	if nvml.OpenLimits("GPU-11111111-2222-3333-4444-555555555555", fake(t)) != nil {
		t.Error("limits of a library without the call")
	}
}
