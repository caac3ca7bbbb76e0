package doctor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/environ"
	"github.com/fencepost-gpu/fencepost/internal/nvml"
)

// Collect looks at s, tests the device that cfg asks for, and judges.
func Collect(ctx context.Context, s System, cfg fencepost.Config) *Report {
	r := &Report{
		Build:    build(),
		Asked:    cmp.Or(fencepost.DeviceKind(s.value("FENCEPOST_DEVICE")), cfg.Device, fencepost.Auto),
		Resource: cmp.Or(fencepost.Backend(s.value("FENCEPOST_RESOURCE")), cfg.Resource),
		Driver:   Driver{NeededVersion: libcuda.MinVersion, Missing: []string{}},
		Devices:  []Device{},
		Host:     s.host(),
		Settings: s.settings(),
		Problems: []Problem{},
	}
	s.driver(r)
	cfg.Findings.Logger = slog.New(slog.DiscardHandler) // the report says it all
	r.SelfTest = s.Test(ctx, cfg)
	r.OK = r.SelfTest.OK
	r.judge(cfg)
	for _, u := range environ.Unknown(s.Environ()) {
		r.say(Warning, u.String(), "correct its name, or unset it")
	}
	return r
}

func build() Build {
	b := Build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "CGO_ENABLED":
			b.Cgo = map[string]string{"0": "off", "1": "on"}[s.Value]
		}
	}
	return b
}

// driver asks the CUDA driver and NVML, in this order: NVML may load a CUDA
// driver of its own choice.
func (s System) driver(r *Report) {
	lib, loadErr := s.Load()
	if loadErr == nil {
		r.Driver.File = mapped(s.text("proc/self/maps"), "libcuda.so")
	}
	reading, err := s.NVML()
	if err != nil {
		r.Driver.NVML = err.Error()
	}
	r.Driver.KernelVersion = cmp.Or(reading.DriverVersion, moduleVersion(s.text("proc/driver/nvidia/version")))
	if loadErr != nil {
		r.Driver.fail(loadErr)
		return
	}
	r.Driver.Library, r.Driver.APIVersion = lib.Path(), lib.Version()
	r.Driver.Missing = append(r.Driver.Missing, lib.Missing()...)
	slices.Sort(r.Driver.Missing)
	n, err := lib.DeviceCount()
	if err != nil {
		r.Driver.Error = err.Error()
	}
	for ordinal := range n {
		r.Devices = append(r.Devices, device(lib, reading, ordinal))
	}
}

// fail notes why the driver could not be loaded.
func (d *Driver) fail(err error) {
	d.Error = err.Error()
	if e, ok := errors.AsType[*libcuda.LoadError](err); ok {
		d.Error = e.Brief()
		d.Help = e.Help
		if e.Stage != libcuda.StageOpen {
			d.Library = e.Path
		}
	}
}

// mapped finds the first file of that name that this process has mapped.
func mapped(maps, name string) string {
	for line := range strings.Lines(maps) {
		if at := strings.IndexByte(line, '/'); at >= 0 && strings.HasPrefix(path.Base(line[at:]), name) {
			return strings.TrimSpace(line[at:])
		}
	}
	return ""
}

// moduleVersion finds the version in the kernel module's own words, such as
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23".
func moduleVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for _, word := range strings.Fields(line) {
		if word[0] >= '0' && word[0] <= '9' && strings.Contains(word, ".") {
			return word
		}
	}
	return ""
}

func device(lib Library, reading nvml.Reading, ordinal int) Device {
	out := Device{Ordinal: ordinal, Processes: -1}
	d, err := lib.Describe(ordinal)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Name, out.UUID, out.PCIBusID = d.Name, d.UUID, d.PCIBusID
	out.Capability = capability(d.ComputeMajor, d.ComputeMinor)
	out.Kernels = 10*d.ComputeMajor+d.ComputeMinor >= leastCapability
	out.Multiprocessors, out.TotalBytes = d.Multiprocessors, d.TotalBytes
	out.MemoryPools, out.VirtualMemory = d.MemoryPools, d.VirtualMemory
	out.ECC, out.ComputeMode = d.ECC, d.ComputeMode
	if d.MIG {
		out.MIG = "instance"
	}
	// NVML numbers physical devices; an instance shares its GPU's address.
	if g, ok := reading.ByBusID(d.PCIBusID); ok {
		out.MIG, out.Processes = cmp.Or(out.MIG, g.MIG), g.Processes
		if !d.MIG && g.TotalBytes > g.UsedBytes {
			out.FreeBytes = g.TotalBytes - g.UsedBytes
		}
	}
	return out
}
