package libcuda_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

func TestALibraryIsLoaded(t *testing.T) {
	f := newFake(t)
	l := f.load()
	equal(t, "path", l.Path(), f.path)
	equal(t, "version", l.Version(), 13000)
	equal(t, "missing symbols", len(l.Missing()), 0)
	count, err := l.DeviceCount()
	must(t, err)
	equal(t, "devices", count, 2)
}

func TestAProcessLoadsOneLibrary(t *testing.T) {
	libcuda.ForgetLoaded()
	defer libcuda.ForgetLoaded()
	t.Setenv(libcuda.PathVariable, filepath.Join(t.TempDir(), "missing.so"))
	_, err := libcuda.Load()
	if !errors.Is(err, libcuda.ErrNoDriver) || !strings.Contains(err.Error(), "missing.so") {
		t.Errorf("got %v", err)
	}
	f := newFake(t)
	t.Setenv(libcuda.PathVariable, f.path)
	first, err := libcuda.Load()
	must(t, err)
	equal(t, "path", first.Path(), f.path)
	t.Setenv(libcuda.PathVariable, "another")
	second, err := libcuda.Load()
	must(t, err)
	equal(t, "library", second, first)
	equal(t, "calls of cuInit", f.calls("cuInit"), 1)
}

// loadError requires that loading path fails in a way that says what to do.
func loadError(t *testing.T, path string, stage libcuda.Stage, code int, says ...string) {
	t.Helper()
	_, err := libcuda.LoadPath(path)
	var e *libcuda.LoadError
	if !errors.As(err, &e) || !errors.Is(err, libcuda.ErrNoDriver) {
		t.Fatalf("got %v, want a LoadError", err)
	}
	equal(t, "stage", e.Stage, stage)
	equal(t, "code", e.Code, code)
	equal(t, "path", e.Path, path)
	if e.Help == "" || !strings.HasPrefix(err.Error(), "no CUDA driver here: ") {
		t.Errorf("the error does not help: %v", err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the error does not say %q: %v", s, err)
		}
	}
}

func TestALibraryThatIsNotThereIsExplained(t *testing.T) {
	loadError(t, filepath.Join(t.TempDir(), "libcuda.so.1"), libcuda.StageOpen, 0, "install the NVIDIA driver", libcuda.PathVariable)
}

func TestAFileThatIsNoLibraryIsExplained(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	must(t, os.WriteFile(path, []byte("no library"), 0o600))
	loadError(t, path, libcuda.StageOpen, 0)
}

func TestALibraryOfSomethingElseIsExplained(t *testing.T) {
	for _, symbol := range []string{"cuInit", "cuDriverGetVersion"} {
		loadError(t, newFake(t, symbol).path, libcuda.StageSymbols, 0, symbol)
	}
}

func TestATooOldDriverIsExplainedWithBothVersions(t *testing.T) {
	f := newFake(t)
	f.set("version", 11020)
	loadError(t, f.path, libcuda.StageVersion, 0, "CUDA 11.2", "11.4")
	equal(t, "calls of cuInit", f.calls("cuInit"), 0)
	f.set("version", libcuda.MinVersion)
	f.load()
}

func TestEveryFailureOfInitIsExplained(t *testing.T) {
	for code, says := range map[int]string{
		driver.StubLibrary: "stub", driver.NoDevice: "CUDA_VISIBLE_DEVICES", driver.SystemNotReady: "fabricmanager",
		driver.DriverMismatch: "reboot", driver.CompatNotSupported: "cuda-compat", driver.Unknown: "nvidia_uvm",
		driver.NotPermitted: "nvidia-smi",
	} {
		f := newFake(t)
		f.set("init", code)
		loadError(t, f.path, libcuda.StageInit, code, says)
		f.set("init", 0)
		f.load() // a failure is not for ever
	}
	f := newFake(t)
	f.fail("cuDriverGetVersion", 1, driver.Unknown)
	loadError(t, f.path, libcuda.StageInit, driver.Unknown, "cuDriverGetVersion")
}

func TestADeviceIsDescribedWithoutAContext(t *testing.T) {
	f := newFake(t)
	got, err := f.load().Describe(1)
	must(t, err)
	want := libcuda.Description{
		Properties: driver.Properties{Name: "Fake GPU", UUID: "GPU-f1f2f3f4-f5f6-f7f8-f9fa-fbfcfdfeff00", PCIBusID: "0000:1b:00.0",
			DriverVersion: 13000, ComputeMajor: 9, Multiprocessors: 132, TotalBytes: 4 << 30, MemoryPools: true},
		Ordinal: 1, ComputeMode: "default", VirtualMemory: true, ECC: true,
	}
	equal(t, "description", got, want)
	equal(t, "contexts made", f.calls("cuDevicePrimaryCtxRetain"), 0)
	f.set("mig", 1)
	f.set("mode", 3)
	f.set("pools", 0)
	got, err = f.load().Describe(0)
	must(t, err)
	if !got.MIG || !strings.HasPrefix(got.UUID, "MIG-") || got.ComputeMode != "exclusive-process" || got.MemoryPools {
		t.Errorf("an exclusive instance without pools is described as %+v", got)
	}
}

func TestADeviceWhoseIdentityTheDriverCannotTellWorksWithoutIt(t *testing.T) {
	const uuid, busID = "cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId"
	for name, c := range map[string]struct {
		without, fails []string
		uuid, busID    string
	}{
		"no UUID function":   {without: []string{uuid}, busID: "0000:1a:00.0"},
		"no bus id function": {without: []string{busID}, uuid: "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff"},
		"the UUID fails":     {fails: []string{uuid}, busID: "0000:1a:00.0"},
		"the bus id fails":   {fails: []string{busID}, uuid: "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff"},
		"both fail":          {fails: []string{uuid, busID}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.without...)
			l := f.load()
			for _, symbol := range c.fails {
				f.fail(symbol, 1, driver.NotSupported)
			}
			d, err := l.Open(0)
			must(t, err)
			p, err := d.Properties()
			must(t, err)
			equal(t, "UUID", p.UUID, c.uuid)
			equal(t, "bus id", p.PCIBusID, c.busID)
			equal(t, "name", p.Name, "Fake GPU")
			equal(t, "pools", p.MemoryPools, true)
			must(t, d.Close())
		})
	}
}

func TestAnInstanceIsIdentifiedApartFromItsGPU(t *testing.T) {
	f := newFake(t)
	f.set("mig", 1)
	p, err := f.open().Properties()
	must(t, err)
	equal(t, "UUID", p.UUID, "MIG-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff")
	equal(t, "bus id", p.PCIBusID, "0000:1a:00.0")
}

func TestADeviceThatDoesNotExistIsExplained(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "3,5")
	f := newFake(t)
	l := f.load()
	for _, ordinal := range []int{-1, 2, 99} {
		_, err := l.Open(ordinal)
		e := driverError(t, err, "cuDeviceGet", driver.InvalidDevice)
		if !strings.Contains(e.Detail, "sees 2") || !strings.Contains(e.Detail, `CUDA_VISIBLE_DEVICES="3,5"`) {
			t.Errorf("the error does not say what is there: %v", err)
		}
	}
	f.set("devices", 0)
	_, err := l.Describe(0)
	fails(t, err, "cuDeviceGet", driver.InvalidDevice)
}

// essential are the symbols without which no device can be opened or closed.
var essential = []string{
	"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
	"cuDeviceTotalMem_v2", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
}

// TestAMissingSymbolDisablesOnlyWhatNeedsIt takes every symbol away in turn.
func TestAMissingSymbolDisablesOnlyWhatNeedsIt(t *testing.T) {
	for _, symbol := range libcuda.Symbols() {
		t.Run(symbol, func(t *testing.T) {
			f := newFake(t, symbol)
			l, err := libcuda.LoadPath(f.path)
			if errors.Is(err, libcuda.ErrNoDriver) && slices.Contains(essential, symbol) {
				return
			}
			must(t, err)
			if got := l.Missing(); len(got) != 1 || got[0] != symbol {
				t.Fatalf("missing: %q", got)
			}
			d, err := l.Open(0)
			if slices.Contains(essential, symbol) {
				unsupported(t, err, symbol)
				return
			}
			must(t, err)
			failed := 0
			for _, c := range everyCall(newBench(t, f, d)) {
				err := c.run()
				failed += count(err != nil)
				needs := slices.Concat(c.symbols, c.also)
				if err != nil && slices.Contains(needs, symbol) != errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			if err := armOnce(l); err != nil {
				failed++
				unsupported(t, err, symbol)
			}
			must(t, d.Close())
			if optional := []string{"cuGetErrorName", "cuGetErrorString", "cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId", "cuThreadExchangeStreamCaptureMode"}; (failed == 0) != slices.Contains(optional, symbol) {
				t.Errorf("%d calls failed", failed)
			}
		})
	}
}

func unsupported(t *testing.T, err error, symbol string) {
	t.Helper()
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), symbol) {
		t.Errorf("got %v, want unsupported for want of %s", err, symbol)
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
