// Package nvml reads from NVIDIA's management library what the CUDA driver
// API does not tell: the version of the kernel module's driver, MIG mode,
// memory that other processes hold, how many of them there are, and limits
// that control groups set on memory.
//
// The library is optional. It comes with the driver, not with the toolkit, and
// containers without the capability "utility" lack it. Whatever cannot be read
// is left empty; [Read] fails only where nothing can be read at all.
package nvml

import (
	"errors"
	"strings"
)

// Library is the name that the driver installs the library under.
const Library = "libnvidia-ml.so.1"

// ErrUnavailable is matched by an error that says that the library cannot be
// used here.
var ErrUnavailable = errors.New("no NVML here")

// Reading is what the library said.
type Reading struct {
	// DriverVersion is the driver's, such as "580.95.05".
	DriverVersion string `json:"driver_version,omitempty"`
	// GPUs are the physical devices, without regard to CUDA_VISIBLE_DEVICES.
	GPUs []GPU `json:"gpus"`
}

// GPU is one physical device.
type GPU struct {
	// Index is NVML's number of the device, which need not be CUDA's ordinal.
	Index int    `json:"index"`
	Name  string `json:"name,omitempty"`
	UUID  string `json:"uuid,omitempty"`
	// PCIBusID is in the form "0000:19:00.0".
	PCIBusID string `json:"pci_bus_id,omitempty"`
	// MIG is "enabled", "disabled", or empty where the device has no such mode.
	MIG string `json:"mig,omitempty"`
	// TotalBytes and UsedBytes are of the whole device, all processes counted.
	TotalBytes uint64 `json:"total_bytes"`
	UsedBytes  uint64 `json:"used_bytes"`
	// Processes is how many have a compute context; -1 if it cannot be told.
	Processes int `json:"processes"`
}

// ByBusID returns the device at a PCI address, and whether there is one.
func (r Reading) ByBusID(id string) (GPU, bool) {
	for _, g := range r.GPUs {
		if SameBus(g.PCIBusID, id) {
			return g, true
		}
	}
	return GPU{}, false
}

// SameBus reports whether two PCI addresses are the same, as CUDA, NVML and Linux write them: with four or eight digits of
// the domain. An empty one is none.
func SameBus(a, b string) bool {
	short := func(id string) string { return strings.TrimLeft(strings.ToLower(id), "0") }
	return a != "" && short(a) == short(b)
}
