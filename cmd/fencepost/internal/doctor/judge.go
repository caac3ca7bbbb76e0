package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/backends"
	"github.com/fencepost-gpu/fencepost/internal/size"
)

// judge lists the problems, the ones that matter most first.
func (r *Report) judge(cfg fencepost.Config) {
	if cfg.Device == fencepost.CUDA && r.Asked != fencepost.CUDA {
		r.say(Warning, "a GPU was asked for, and FENCEPOST_DEVICE="+string(r.Asked)+" overrides that", "unset FENCEPOST_DEVICE")
	}
	r.judgePoolSettings()
	if !r.OK && !r.noDriver() {
		r.say(Severe, fmt.Sprintf("the self-test failed at %q: %s", r.SelfTest.Step, r.SelfTest.Error), r.selfTestFix())
	}
	r.judgeDriver()
	r.judgeNodes()
	for _, d := range r.Devices {
		r.judgeDevice(d)
	}
	r.judgeHost()
}

// judgePoolSettings says that settings of the pool are not looked at by another backend.
func (r *Report) judgePoolSettings() {
	for _, s := range r.Settings {
		if strings.HasPrefix(s.Name, "FENCEPOST_POOL_") && s.Value != "" && !r.ownPool() {
			r.say(Note, fmt.Sprintf("%s has no effect: the backend is %s", s.Name, cmp.Or(r.Resource, fencepost.Async)), "set FENCEPOST_RESOURCE=pool, or unset it")
		}
	}
}

// ownPool is whether the backend is the runtime's own pool, as far as can be told.
func (r *Report) ownPool() bool {
	return r.Resource == fencepost.Pool || r.Resource == "" && (r.SelfTest.Pool == nil || r.SelfTest.Pool.Own)
}

// noDriver is whether the driver's error is why the self-test failed.
func (r *Report) noDriver() bool {
	return r.Driver.Error != "" && r.SelfTest.Device == nil && r.Asked != fencepost.Sim
}

func (r *Report) say(severity, text, fix string) {
	r.Problems = append(r.Problems, Problem{Severity: severity, Text: text, Fix: fix})
}

func (r *Report) selfTestFix() string {
	if r.Asked == fencepost.Sim {
		return "see the settings above: the simulated device needs nothing but address space"
	}
	return "see the lines below and \"what to do\" in docs/kubernetes.md; FENCEPOST_DEVICE=sim goes on without a GPU"
}

// gravity is how bad it is that there is no GPU to use: severe if one had to
// be.
func (r *Report) gravity(otherwise string) string {
	if r.OK {
		return otherwise
	}
	return Severe
}

func (r *Report) judgeDriver() {
	d := r.Driver
	switch {
	case d.Error != "" && d.Library == "" && r.isSet(libcuda.PathVariable):
		r.say(r.gravity(Warning), libcuda.PathVariable+" names no driver library: "+d.Error, "unset it, or name the file that is there")
	case d.Error != "" && d.Library == "" && len(r.Host.Nodes) == 0 && !r.Host.WSL:
		r.say(r.gravity(Note), "no GPU is visible", r.noGPUFix())
	case d.Error != "" && d.Library == "":
		r.say(r.gravity(Warning), "the device files of a GPU are here and the driver library is not",
			"in a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility and start it with the NVIDIA Container Toolkit (--gpus all)")
	case d.Error != "":
		r.say(r.gravity(Note), "the CUDA driver cannot be used: "+d.Error, cmp.Or(d.Help, "see nvidia-smi, dmesg and CUDA_VISIBLE_DEVICES"))
	case len(r.Devices) == 0:
		r.say(r.gravity(Note), "the CUDA driver shows no device", "see CUDA_VISIBLE_DEVICES and nvidia-smi")
	}
	if len(d.Missing) > 0 {
		r.say(Warning, "the driver lacks "+strings.Join(d.Missing, ", ")+"; what needs these calls is refused", "update the driver")
	}
	if d.Library != "" && d.APIVersion < libcuda.DumpVersion && r.isSet("FENCEPOST_FAULTS") {
		r.say(Warning, "faults of kernels cannot be named: that needs a driver of CUDA "+versionText(libcuda.DumpVersion), "update the driver, or unset FENCEPOST_FAULTS")
	}
	if d.Library != "" && d.NVML != "" {
		r.say(Note, d.NVML+": MIG mode and other processes cannot be told",
			"in a container, add \"utility\" to NVIDIA_DRIVER_CAPABILITIES; nothing else needs it")
	}
}

// isSet reports whether a variable is among the settings, and not empty.
func (r *Report) isSet(name string) bool {
	return slices.ContainsFunc(r.Settings, func(s Setting) bool { return s.Name == name && s.Value != "" })
}

func (r *Report) noGPUFix() string {
	if system, _, _ := strings.Cut(r.Build.Platform, "/"); system != "linux" {
		return "nothing: NVIDIA GPUs are used on Linux, and " + system + " has the simulated device"
	}
	if r.Host.Container != "" {
		return "for a GPU, start the container with --gpus all (docker) or nvidia.com/gpu (Kubernetes) on a host with the NVIDIA Container Toolkit; FENCEPOST_DEVICE=sim goes on without one"
	}
	return "for a GPU, install the NVIDIA driver, release 470 or later (no CUDA toolkit is needed); FENCEPOST_DEVICE=sim goes on without one"
}

// versionText is 13000 as "13.0".
func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// neededVersion is the least driver API.
func neededVersion() string { return versionText(libcuda.MinVersion) }

// leastCapability is the compute capability that the built-in kernels are
// compiled for: Turing, the oldest that current drivers support.
const leastCapability = 75

func capability(major, minor int) string { return fmt.Sprintf("%d.%d", major, minor) }

func (r *Report) judgeNodes() {
	if blocked := r.Host.blocked(); len(blocked) > 0 {
		r.say(Warning, "no access to "+strings.Join(blocked, ", "),
			"run as a member of the files' group, or give the container the devices with --gpus instead of --device")
	}
	if r.Driver.Library == "" || r.Host.WSL {
		return
	}
	var text, fix string
	switch {
	case len(r.Host.Nodes) == 0:
		text, fix = "the driver library is here and no /dev/nvidia* is", "load the kernel module (nvidia-modprobe), or start the container with --gpus all"
	case !r.Host.hasNode("/dev/nvidia-uvm"):
		text, fix = "/dev/nvidia-uvm is missing, which CUDA needs on most machines", "run nvidia-modprobe -u -c=0 on the host, and give the container the file"
	default:
		return
	}
	if r.OK && r.SelfTest.Device.Kind == fencepost.CUDA {
		r.say(Note, text, "nothing: the self-test passed on the GPU")
		return
	}
	r.say(Warning, text, fix)
}

func (r *Report) judgeDevice(d Device) {
	name := fmt.Sprintf("cuda:%d", d.Ordinal)
	if d.Error != "" {
		r.say(Warning, name+": "+d.Error, "see nvidia-smi and dmesg")
		return
	}
	if !d.Kernels {
		r.say(Warning, fmt.Sprintf("%s has compute capability %s; the built-in kernels need %s", name, d.Capability, capability(leastCapability/10, leastCapability%10)),
			"use a GPU of the Turing generation or later")
	}
	served := backends.Of(d.MemoryPools, d.VirtualMemory)
	instead := fmt.Sprintf("set FENCEPOST_RESOURCE=%s; auto takes the simulated device otherwise", served[0])
	switch {
	case !d.MemoryPools && !d.VirtualMemory && r.Resource == "":
		r.say(Warning, name+" maps no memory and has no memory pools: the default backend needs one of them", instead)
	case !d.MemoryPools && r.Resource == fencepost.Async:
		r.say(Warning, name+" has no memory pools, which the backend async needs", instead)
	case !d.VirtualMemory && r.Resource == fencepost.Pool:
		r.say(Warning, name+" maps no memory, which the pool backend needs", instead)
	}
	if d.ComputeMode == "prohibited" {
		r.say(Warning, name+" is in compute mode \"prohibited\"", "nvidia-smi -c DEFAULT")
	}
	if d.ComputeMode == "exclusive-process" && r.Host.MPS == "" {
		r.say(Note, name+" is in compute mode \"exclusive-process\": one process at a time", "nvidia-smi -c DEFAULT, or start MPS, to share it")
	}
	if d.MIG == "enabled" {
		r.say(Note, name+" is in MIG mode and no instance of it is chosen", "name an instance in CUDA_VISIBLE_DEVICES=MIG-...; nvidia-smi -L lists them")
	}
	if others := d.Processes; others > 0 && d.FreeBytes > 0 {
		r.say(Note, fmt.Sprintf("%s is used by %d other processes, which hold %s", name, others,
			size.Of(d.TotalBytes-min(d.FreeBytes, d.TotalBytes))),
			"set FENCEPOST_BUDGET to this process's share: the default is what was free when it started")
	}
}

func (r *Report) judgeHost() {
	if v := r.Host.VisibleDevices; v != nil && (*v == "" || *v == "-1") {
		r.say(r.gravity(Note), fmt.Sprintf("CUDA_VISIBLE_DEVICES=%q hides every device", *v), "unset it, or list devices")
	}
	if r.Host.MPS != "" {
		r.say(Note, "MPS seems to run in "+r.Host.MPS+": a fault of one client can end the others' work, and limits may be set there",
			"nothing, if that is meant")
	}
	if why, not := strings.CutPrefix(r.SelfTest.KernelLog, "not readable: "); not {
		why, fix, _ := strings.Cut(why, "; ")
		r.say(Warning, "the Xids of a lost device cannot be told: "+why, cmp.Or(fix, "unset FENCEPOST_KERNEL_LOG"))
	}
	if r.Host.WSL {
		r.say(Note, "this is WSL: pinned host memory is scarce, and devices may lack memory pools", "nothing, if the self-test passed")
	}
	if locked := r.Host.LockedMax; locked > 0 && locked < 1<<20 && len(r.Devices) > 0 {
		r.say(Note, "only "+size.Of(locked)+" of host memory may be locked",
			"if pinned buffers fail: ulimit -l unlimited, or --ulimit memlock=-1 for a container")
	}
}
