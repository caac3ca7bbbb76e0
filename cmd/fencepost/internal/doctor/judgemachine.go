package doctor

import (
	"fmt"
	"strings"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

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
	if !d.MemoryPools && r.Resource == fencepost.Async {
		r.say(Warning, name+" has no memory pools, which the default backend needs", "set FENCEPOST_RESOURCE=direct; auto takes the simulated device otherwise")
	}
	if !d.VirtualMemory && r.Resource == fencepost.Pool {
		r.say(Warning, name+" maps no memory, which the pool backend needs", "set FENCEPOST_RESOURCE=async; auto takes the simulated device otherwise")
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
		r.say(Note, fmt.Sprintf("%s is used by %d other processes, which hold %s", name, others, terminal.Size(d.TotalBytes-min(d.FreeBytes, d.TotalBytes))),
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
	if r.Host.WSL {
		r.say(Note, "this is WSL: pinned host memory is scarce, and devices may lack memory pools", "nothing, if the self-test passed")
	}
	if locked := r.Host.LockedMax; locked > 0 && locked < 1<<20 && len(r.Devices) > 0 {
		r.say(Note, "only "+terminal.Size(locked)+" of host memory may be locked", "if pinned buffers fail: ulimit -l unlimited, or --ulimit memlock=-1 for a container")
	}
}
