package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/nvml"
)

// library is a CUDA driver of the test's making.
type library struct {
	version int
	missing []string
	devices []libcuda.Description
}

func (l library) Path() string              { return "libcuda.so.1" }
func (l library) Version() int              { return l.version }
func (l library) Missing() []string         { return l.missing }
func (l library) DeviceCount() (int, error) { return len(l.devices), nil }

func (l library) Describe(ordinal int) (libcuda.Description, error) {
	if l.devices[ordinal].Name == "" {
		return libcuda.Description{}, errors.New("the device fell off the bus")
	}
	return l.devices[ordinal], nil
}

var h200 = libcuda.Description{
	Properties: driver.Properties{Name: "NVIDIA H200", UUID: "GPU-1", PCIBusID: "0000:19:00.0", ComputeMajor: 9, Multiprocessors: 132,
		TotalBytes: 140 << 30, MemoryPools: true},
	VirtualMemory: true, ECC: true, ComputeMode: "default"}

// machine is a healthy server with one GPU; tests break it.
func machine() System {
	return System{
		Files: fstest.MapFS{
			"dev/nvidia0": {}, "dev/nvidiactl": {}, "dev/nvidia-uvm": {}, "dev/nvidia-caps/cap1": {}, "dev/nvidia-modeset": {},
			"proc/self/maps":             {Data: []byte("7f00-7f01 r-xp 0 fe:00 1 /usr/lib/libc.so.6\n7f02-7f03 r-xp 0 fe:00 1   /usr/lib/libcuda.so.580.95.05\n")},
			"proc/driver/nvidia/version": {Data: []byte("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23\nGCC version: 13.3\n")},
		},
		Variable:  func(string) (string, bool) { return "", false },
		Environ:   func() []string { return nil },
		Access:    func(string) error { return nil },
		LockedMax: func() uint64 { return 0 },
		Load:      func() (Library, error) { return library{version: 13000, devices: []libcuda.Description{h200}}, nil },
		NVML: func() (nvml.Reading, error) {
			return nvml.Reading{GPUs: []nvml.GPU{{PCIBusID: "0000:19:00.0", MIG: "disabled", TotalBytes: 140 << 30, UsedBytes: 1 << 30}}}, nil
		},
		Test: func(_ context.Context, cfg fencepost.Config) SelfTest {
			return SelfTest{OK: true, Device: &fencepost.DeviceChoice{Kind: fencepost.CUDA, Ordinal: cfg.Ordinal, Name: "NVIDIA H200"}}
		},
	}
}

func (s System) with(variables map[string]string) System {
	s.Variable = func(name string) (string, bool) { v, ok := variables[name]; return v, ok }
	s.Environ = func() (all []string) {
		for name, value := range variables {
			all = append(all, name+"="+value)
		}
		return all
	}
	return s
}

// withFile adds files to the machine's.
func (s System) withFile(name, text string) System {
	s.Files.(fstest.MapFS)[name] = &fstest.MapFile{Data: []byte(text)}
	return s
}

func (s System) without(names ...string) System {
	for _, name := range names {
		delete(s.Files.(fstest.MapFS), name)
	}
	return s
}

// withDevice changes the device.
func (s System) withDevice(change func(*libcuda.Description)) System {
	d := h200
	change(&d)
	s.Load = func() (Library, error) { return library{version: 13000, devices: []libcuda.Description{d}}, nil }
	return s
}

// withVersion has a driver of that version.
func (s System) withVersion(version int) System {
	s.Load = func() (Library, error) { return library{version: version, devices: []libcuda.Description{h200}}, nil }
	return s
}

// withoutDriver fails as loading the library does.
func (s System) withoutDriver(e *libcuda.LoadError) System {
	s.Load = func() (Library, error) { return nil, e }
	return s
}

// simulating passes the self-test on the simulated device.
func (s System) simulating() System {
	s.Test = func(context.Context, fencepost.Config) SelfTest {
		return SelfTest{OK: true, Device: &fencepost.DeviceChoice{Kind: fencepost.Sim}}
	}
	return s
}

// logging passes the self-test on a machine whose kernel's log is so.
func (s System) logging(state string) System {
	s.Test = func(context.Context, fencepost.Config) SelfTest {
		return SelfTest{OK: true, Device: &fencepost.DeviceChoice{Kind: fencepost.CUDA}, KernelLog: state}
	}
	return s
}

func (s System) failing(step, text string) System {
	s.Test = func(context.Context, fencepost.Config) SelfTest { return SelfTest{Step: step, Error: text} }
	return s
}

var noLibrary = &libcuda.LoadError{Stage: libcuda.StageOpen, Path: "libcuda.so.1", Text: "could not be opened: libcuda.so.1: No such file or directory"}

func TestAHealthyMachineHasNoProblems(t *testing.T) {
	r := Collect(t.Context(), machine(), fencepost.Config{})
	if !r.OK || len(r.Problems) > 0 {
		t.Errorf("ok %v, problems %+v", r.OK, r.Problems)
	}
	want := Device{Name: "NVIDIA H200", UUID: "GPU-1", PCIBusID: "0000:19:00.0", Capability: "9.0", Multiprocessors: 132, TotalBytes: 140 << 30,
		FreeBytes: 139 << 30, MemoryPools: true, VirtualMemory: true, ECC: true, ComputeMode: "default", MIG: "disabled", Kernels: true}
	if len(r.Devices) != 1 || r.Devices[0] != want {
		t.Errorf("devices %+v, want %+v", r.Devices, want)
	}
	if r.Driver.KernelVersion != "580.95.05" || r.Driver.File != "/usr/lib/libcuda.so.580.95.05" || len(r.Host.Nodes) != 3 {
		t.Errorf("driver %+v, nodes %+v", r.Driver, r.Host.Nodes)
	}
}

// Each thing that goes wrong is told once, as badly as it is, with what to do.
func TestEachProblemSaysWhatToDo(t *testing.T) {
	nodes := []string{"dev/nvidia0", "dev/nvidiactl", "dev/nvidia-uvm"}
	for name, c := range map[string]struct {
		system              System
		device              string
		severity, text, fix string
	}{
		"no GPU":             {machine().without(nodes...).withoutDriver(noLibrary), "auto", Note, "no GPU is visible", "install the NVIDIA driver"},
		"no GPU, and needed": {machine().without(nodes...).withoutDriver(noLibrary).failing("open", "none"), "cuda", Severe, "no GPU is visible", "FENCEPOST_DEVICE=sim"},
		"no GPU in docker":   {machine().without(nodes...).withoutDriver(noLibrary).withFile(".dockerenv", ""), "auto", Note, "no GPU is visible", "--gpus all"},
		"no library":         {machine().withoutDriver(noLibrary), "auto", Warning, "the driver library is not", "NVIDIA_DRIVER_CAPABILITIES"},
		"a wrong path":       {machine().withoutDriver(noLibrary).with(map[string]string{libcuda.PathVariable: "no/libcuda.so.1"}), "auto", Warning, "names no driver library", "unset it"},
		"no device files":    {machine().without(nodes...).simulating(), "auto", Warning, "no /dev/nvidia* is", "--gpus all"},
		"no nvidia-uvm":      {machine().without("dev/nvidia-uvm").simulating(), "auto", Warning, "/dev/nvidia-uvm is missing", "nvidia-modprobe"},
		"no need of it":      {machine().without("dev/nvidia-uvm"), "auto", Note, "/dev/nvidia-uvm is missing", "nothing: the self-test passed"},
		"a broken driver": {machine().withoutDriver(&libcuda.LoadError{Stage: libcuda.StageInit, Path: "libcuda.so.1", Code: 802, Text: "not ready", Help: "see fabricmanager"}).failing("open", "not ready"),
			"auto", Severe, "not ready", "see fabricmanager"},
		"an old GPU":        {machine().withDevice(func(d *libcuda.Description) { d.ComputeMajor = 7 }), "auto", Warning, "compute capability 7.0; the built-in kernels need 7.5", "Turing"},
		"no pools":          {machine().withDevice(func(d *libcuda.Description) { d.MemoryPools, d.VirtualMemory = false, false }), "auto", Warning, "no memory pools", "FENCEPOST_RESOURCE=direct"},
		"prohibited":        {machine().withDevice(func(d *libcuda.Description) { d.ComputeMode = "prohibited" }), "auto", Warning, "prohibited", "nvidia-smi -c DEFAULT"},
		"exclusive":         {machine().withDevice(func(d *libcuda.Description) { d.ComputeMode = "exclusive-process" }), "auto", Note, "one process at a time", "MPS"},
		"a lost device":     {machine().withDevice(func(d *libcuda.Description) { d.Name = "" }), "auto", Warning, "fell off the bus", "dmesg"},
		"hidden devices":    {machine().with(map[string]string{"CUDA_VISIBLE_DEVICES": "-1"}), "auto", Note, `CUDA_VISIBLE_DEVICES="-1" hides every device`, "unset it"},
		"an override":       {machine().with(map[string]string{"FENCEPOST_DEVICE": "sim"}), "cuda", Warning, "FENCEPOST_DEVICE=sim overrides", "unset FENCEPOST_DEVICE"},
		"a typing error":    {machine().with(map[string]string{"FENCEPOST_DEVCE": "cuda"}), "auto", Warning, "FENCEPOST_DEVCE is no variable of Fencepost and has no effect; the nearest known name is FENCEPOST_DEVICE", "correct its name"},
		"a pool not chosen": {machine().with(map[string]string{"FENCEPOST_POOL_LIMIT": "1GiB", "FENCEPOST_RESOURCE": "async"}), "auto", Note, "FENCEPOST_POOL_LIMIT has no effect: the backend is async", "FENCEPOST_RESOURCE=pool"},
		"no dumps":          {machine().withVersion(12040).with(map[string]string{"FENCEPOST_FAULTS": "name"}), "auto", Warning, "faults of kernels cannot be named", "unset FENCEPOST_FAULTS"},
		"no kernel log":     {machine().logging("not readable: open /dev/kmsg: operation not permitted; run with CAP_SYSLOG"), "auto", Warning, "open /dev/kmsg: operation not permitted", "CAP_SYSLOG"},
		"MPS":               {machine().withFile("tmp/nvidia-mps/control", ""), "auto", Note, "/tmp/nvidia-mps", "nothing"},
		"WSL":               {machine().withFile("dev/dxg", ""), "auto", Note, "this is WSL", "nothing"},
		"a failed test":     {machine().failing("compare", "word 3 came back wrong"), "auto", Severe, `failed at "compare": word 3`, "docs/kubernetes.md"},
		"a lone simulation": {machine().with(map[string]string{"FENCEPOST_DEVICE": "sim"}).failing("open", "no room"), "sim", Severe, "no room", "address space"},
	} {
		r := Collect(t.Context(), c.system, fencepost.Config{Device: fencepost.DeviceKind(c.device)})
		found := slices.ContainsFunc(r.Problems, func(p Problem) bool {
			return p.Severity == c.severity && strings.Contains(p.Text, c.text) && strings.Contains(p.Fix, c.fix)
		})
		if !found || len(r.Problems) != 1 {
			t.Errorf("%s: want one problem, %s %q, fix %q; got %+v", name, c.severity, c.text, c.fix, r.Problems)
		}
	}
}

func TestWhatABackendDoesNotNeedIsNoProblem(t *testing.T) {
	poolless := machine().withDevice(func(d *libcuda.Description) { d.MemoryPools = false })
	for name, r := range map[string]*Report{
		"by the flag":     Collect(t.Context(), poolless, fencepost.Config{Resource: fencepost.Direct}),
		"by the variable": Collect(t.Context(), poolless.with(map[string]string{"FENCEPOST_RESOURCE": "direct"}), fencepost.Config{Resource: fencepost.Async}),
	} {
		if len(r.Problems) > 0 {
			t.Errorf("direct %s: %+v", name, r.Problems)
		}
	}
	for _, backend := range []fencepost.Backend{fencepost.Pool, ""} {
		if r := Collect(t.Context(), poolless, fencepost.Config{Resource: backend}); len(r.Problems) > 0 {
			t.Errorf("%q: %+v", backend, r.Problems)
		}
	}
	limited := machine().with(map[string]string{"FENCEPOST_POOL_LIMIT": "1GiB", "FENCEPOST_POOL_TRIM_AFTER": ""})
	if r := Collect(t.Context(), limited, fencepost.Config{}); len(r.Problems) > 0 {
		t.Errorf("the pool's settings, over the pool: %+v", r.Problems)
	}
}

// The advice for a device that lacks what a backend needs is a backend that the device serves.
func TestTheAdviceOnABackendIsNoProblemAgain(t *testing.T) {
	for _, device := range []struct{ pools, maps bool }{{}, {pools: true}, {maps: true}, {true, true}} {
		lacking := machine().withDevice(func(d *libcuda.Description) {
			d.MemoryPools, d.VirtualMemory = device.pools, device.maps
		})
		serves := map[fencepost.Backend]bool{"": device.pools || device.maps, fencepost.Async: device.pools,
			fencepost.Pool: device.maps, fencepost.Direct: true}
		for backend, right := range serves {
			problems := Collect(t.Context(), lacking, fencepost.Config{Resource: backend}).Problems
			if right {
				if len(problems) > 0 {
					t.Errorf("%q on a device with %+v: %+v", backend, device, problems)
				}
				continue
			}
			if len(problems) != 1 {
				t.Fatalf("%q on a device with %+v: %+v", backend, device, problems)
			}
			_, advice, _ := strings.Cut(problems[0].Fix, "FENCEPOST_RESOURCE=")
			advice, _, _ = strings.Cut(advice, ";")
			if !serves[fencepost.Backend(advice)] || advice == "direct" && serves[""] {
				t.Errorf("%q on a device with %+v: the advice is %q", backend, device, advice)
			}
		}
	}
}

func TestAnUnknownNumberOfProcessesIsNotPrinted(t *testing.T) {
	for processes, want := range map[int]string{-1: ", 139.0 GiB free", 0: ", 139.0 GiB free, 0 processes", 3: ", 139.0 GiB free, 3 processes"} {
		if got := (Device{FreeBytes: 139 << 30, Processes: processes}).freeText(); got != want {
			t.Errorf("%d processes: %q, want %q", processes, got, want)
		}
	}
}

func TestWhatOthersUseOfTheDeviceIsTold(t *testing.T) {
	s := machine()
	s.NVML = func() (nvml.Reading, error) {
		return nvml.Reading{DriverVersion: "470.82.01", GPUs: []nvml.GPU{{PCIBusID: "0000:19:00.0", MIG: "enabled", TotalBytes: 140 << 30, UsedBytes: 100 << 30, Processes: 2}}}, nil
	}
	s.Access = func(path string) error {
		if path == "/dev/nvidia0" {
			return errors.New("permission denied")
		}
		return nil
	}
	s.LockedMax = func() uint64 { return 64 << 10 }
	r := Collect(t.Context(), s, fencepost.Config{})
	var all strings.Builder
	for _, p := range r.Problems {
		all.WriteString(p.Text + "\n")
	}
	for _, want := range []string{"no access to /dev/nvidia0", "no instance of it is chosen", "2 other processes, which hold 100.0 GiB", "only 64.0 KiB of host memory may be locked"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%q is not among the problems:\n%s", want, all.String())
		}
	}
	if r.Driver.KernelVersion != "470.82.01" {
		t.Errorf("the kernel module is %s", r.Driver.KernelVersion)
	}
}

func TestTheLeastMemoryLimitOnTheWayToTheRootCounts(t *testing.T) {
	s := machine().withFile("proc/self/cgroup", "0::/a/b\n").
		withFile("sys/fs/cgroup/a/b/memory.max", "max\n").withFile("sys/fs/cgroup/a/memory.max", "1048576\n").withFile("sys/fs/cgroup/memory.max", "4194304\n")
	if got := s.memoryMax(); got != 1<<20 {
		t.Errorf("got %d, want %d", got, 1<<20)
	}
	if got := machine().memoryMax(); got != 0 {
		t.Errorf("without control groups: %d", got)
	}
}

// The text fits a terminal of 80 columns, but for words that must stay whole.
func TestTheTextFitsATerminal(t *testing.T) {
	s := machine().with(map[string]string{"FENCEPOST_GUARD": "hunt", "CUDA_VISIBLE_DEVICES": ""}).withFile("dev/dxg", "")
	s = s.withDevice(func(d *libcuda.Description) {
		d.MemoryPools, d.ComputeMode, d.ComputeMajor = false, "exclusive-process", 5
	})
	var out strings.Builder
	Collect(t.Context(), s, fencepost.Config{}).Print(&out)
	for line := range strings.Lines(out.String()) {
		if len(strings.TrimRight(line, "\n")) > pageWidth {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	for _, want := range []string{"Device cuda:0  NVIDIA H200", "API version     13.0, at least 11.4 is needed", "139.0 GiB free", "FENCEPOST_GUARD=hunt",
		"kernel module   580.95.05", "Fencepost runs here, on cuda:0 NVIDIA H200."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, out.String())
		}
	}
}

func TestTheReportIsJSONWithoutNulls(t *testing.T) {
	text, err := json.Marshal(Collect(t.Context(), machine().without("dev/nvidia0").withoutDriver(noLibrary), fencepost.Config{}))
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestNobodyIsToldToInstallADriverWhereThereIsNone(t *testing.T) {
	for platform, want := range map[string]string{
		"linux/amd64":   "install the NVIDIA driver",
		"windows/amd64": "NVIDIA GPUs are used on Linux, and windows has the simulated device",
		"darwin/arm64":  "NVIDIA GPUs are used on Linux, and darwin has the simulated device",
	} {
		r := Report{Build: Build{Platform: platform}}
		if fix := r.noGPUFix(); !strings.Contains(fix, want) {
			t.Errorf("%s: %q", platform, fix)
		}
	}
}

func TestLimitsOfOthersAreTold(t *testing.T) {
	s := machine()
	s.Test = func(context.Context, fencepost.Config) SelfTest {
		return SelfTest{OK: true, Device: &fencepost.DeviceChoice{Kind: fencepost.CUDA},
			Limits: []readings.MemoryLimit{{Source: "cgroup", Name: "/sys/fs/cgroup/pod/dmem.max", Bytes: 8 << 30, Used: 1 << 30, Allowed: 6 << 30}}}
	}
	var out strings.Builder
	Collect(t.Context(), s, fencepost.Config{}).Print(&out)
	for _, want := range []string{"limit by cgroup", "8.0 GiB in /sys/fs/cgroup/pod/dmem.max", "1.0 GiB used", "6.0 GiB"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, out.String())
		}
	}
}
