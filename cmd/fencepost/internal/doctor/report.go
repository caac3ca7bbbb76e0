// Package doctor looks at a machine as the runtime will find it: the CUDA
// driver, its devices, what containers and limits do to them, and whether a
// runtime opened there works. It names each problem with what to do about it.
//
// [Collect] gathers facts through a [System], which tests replace; [Report]
// prints itself for people and encodes itself for machines.
package doctor

import (
	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core/readings"
)

// Report is what was found. Sizes are bytes.
type Report struct {
	Build Build `json:"build"`
	// Asked is the device that was asked for: auto, cuda or sim.
	Asked fencepost.DeviceKind `json:"asked"`
	// Resource is the backend that was asked for: async, pool or direct; empty where the device decides.
	Resource fencepost.Backend `json:"resource"`
	Driver   Driver            `json:"driver"`
	Devices  []Device          `json:"devices"`
	Host     Host              `json:"host"`
	Settings []Setting         `json:"settings"`
	SelfTest SelfTest          `json:"self_test"`
	Problems []Problem         `json:"problems"`
	// OK is whether Fencepost can run here as asked: the self-test passed.
	OK bool `json:"ok"`
}

// Build is this program's.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Cgo is "on", "off", or empty where the build does not say.
	Cgo string `json:"cgo,omitempty"`
}

// Driver is the CUDA driver.
type Driver struct {
	// Library is what libcuda was loaded as, empty if none could be opened,
	// and File the file that it was found in.
	Library string `json:"library,omitempty"`
	File    string `json:"file,omitempty"`
	// Error is why the driver cannot be used, Help what to do about it.
	Error string `json:"error,omitempty"`
	Help  string `json:"help,omitempty"`
	// APIVersion is the driver API's, such as 13000 for CUDA 13.0, and
	// NeededVersion the least that will do.
	APIVersion    int `json:"api_version,omitempty"`
	NeededVersion int `json:"needed_version"`
	// KernelVersion is the kernel module's, such as "580.95.05".
	KernelVersion string `json:"kernel_version,omitempty"`
	// Missing are calls that the library lacks, with what that disables.
	Missing []string `json:"missing"`
	// NVML is empty, or why the management library cannot be read.
	NVML string `json:"nvml_error,omitempty"`
}

// Device is a GPU as the CUDA driver shows it, with what NVML adds.
type Device struct {
	Ordinal         int    `json:"ordinal"`
	Error           string `json:"error,omitempty"`
	Name            string `json:"name,omitempty"`
	UUID            string `json:"uuid,omitempty"`
	PCIBusID        string `json:"pci_bus_id,omitempty"`
	Capability      string `json:"compute_capability,omitempty"`
	Multiprocessors int    `json:"multiprocessors,omitempty"`
	TotalBytes      uint64 `json:"total_bytes,omitempty"`
	// FreeBytes is of the whole physical device; 0 if it cannot be told
	// without making a context.
	FreeBytes uint64 `json:"free_bytes,omitempty"`
	// Processes have a compute context on the physical device; -1 if that
	// cannot be told.
	Processes     int    `json:"processes"`
	MemoryPools   bool   `json:"memory_pools"`
	VirtualMemory bool   `json:"virtual_memory"`
	ECC           bool   `json:"ecc"`
	ComputeMode   string `json:"compute_mode,omitempty"`
	MIG           string `json:"mig,omitempty"`
	// Kernels is whether the built-in kernels can run there.
	Kernels bool `json:"kernels"`
}

// Host is the machine or container around the process.
type Host struct {
	// Nodes are the driver's device files, in order of name.
	Nodes []Node `json:"nodes"`
	// WSL is whether this is Linux under Windows, which has /dev/dxg instead
	// of device files.
	WSL bool `json:"wsl"`
	// Container is what kind of container this seems to be, if it is one.
	Container string `json:"container,omitempty"`
	// MPS is the control pipe's folder if a daemon seems to run there.
	MPS string `json:"mps,omitempty"`
	// VisibleDevices is CUDA_VISIBLE_DEVICES, nil if it is not set.
	VisibleDevices *string `json:"cuda_visible_devices,omitempty"`
	// MemoryMax is the control group's limit on host memory, 0 for none.
	MemoryMax uint64 `json:"memory_max,omitempty"`
	// LockedMax is the limit on locked host memory, 0 for none.
	LockedMax uint64 `json:"locked_max,omitempty"`
}

// Node is a device file.
type Node struct {
	Path  string `json:"path"`
	Error string `json:"error,omitempty"` // why it cannot be read and written
}

// Setting is an environment variable that is set and means something here.
type Setting struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Meaning string `json:"meaning"`
}

// SelfTest is a short use of the device that Open takes.
type SelfTest struct {
	OK     bool                    `json:"ok"`
	Device *fencepost.DeviceChoice `json:"device,omitempty"`
	Stack  string                  `json:"stack,omitempty"`
	// Budget is the limit in force.
	Budget uint64 `json:"budget,omitempty"`
	// Limits are those that others set on the device's memory, as [fencepost.Runtime.MemoryLimits] has them.
	Limits []readings.MemoryLimit `json:"limits,omitempty"`
	// Pool is what the pool had when all of the test was freed; nil without a pool.
	Pool *Pool `json:"pool,omitempty"`
	// RedZones is whether the device compared the red zones around a block. A
	// budget with no room for them leaves them out.
	RedZones bool `json:"red_zones_verified"`
	// KernelLog is that of [fencepost.GuardStatus].
	KernelLog string `json:"kernel_log,omitempty"`
	// Step is the last that was tried, and Error what went wrong there.
	Step         string  `json:"step"`
	Error        string  `json:"error,omitempty"`
	Milliseconds float64 `json:"milliseconds"`
}

// Pool is the memory that the backend shares out.
type Pool struct {
	// Reserved is what it holds of the device, and Cached the part that is in no block.
	Reserved uint64 `json:"reserved_bytes"`
	Cached   uint64 `json:"cached_bytes"`
	// Own is whether it is the runtime's own, and Fragmented the part of Cached that lies in no
	// wholly free page of it. Limit is what it may hold, 0 for no limit.
	Own        bool   `json:"own"`
	Fragmented uint64 `json:"fragmented_bytes"`
	Limit      uint64 `json:"limit_bytes"`
}

// Severities of problems.
const (
	// Severe keeps Fencepost from running as asked.
	Severe = "error"
	// Warning disables something, or may do so later.
	Warning = "warning"
	// Note is worth knowing.
	Note = "note"
)

// Problem is something to know, with what to do about it.
type Problem struct {
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Fix      string `json:"fix"`
}
