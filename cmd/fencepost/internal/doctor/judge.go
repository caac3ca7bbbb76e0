package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
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
		if strings.HasPrefix(s.Name, "FENCEPOST_POOL_") && s.Value != "" && r.Resource != fencepost.Pool {
			r.say(Note, fmt.Sprintf("%s has no effect: the backend is %s", s.Name, r.Resource), "set FENCEPOST_RESOURCE=pool, or unset it")
		}
	}
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
