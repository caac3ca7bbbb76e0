package libcuda

import (
	"fmt"
	"os"
	"strings"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Description is what the driver says about a device.
type Description struct {
	// Ordinal is the device's number in this process, from 0.
	Ordinal int
	// Name is the device's, such as "NVIDIA H200".
	Name string
	// UUID identifies the device, as nvidia-smi -L writes it: "GPU-...", or
	// "MIG-..." for an instance. Empty if the driver cannot say.
	UUID string
	// PCIBusID is such as "0000:3b:00.0", in lower case; that of the GPU for an
	// instance. Empty if the driver cannot say.
	PCIBusID string
	// ComputeMajor and ComputeMinor are the compute capability.
	ComputeMajor, ComputeMinor int
	Multiprocessors            int
	// TotalBytes is the device's memory.
	TotalBytes uint64
	// AsyncEngines is the number of copies that run beside kernels.
	AsyncEngines int
	// ComputeMode says who may use the device: "default",
	// "exclusive-process" or "prohibited".
	ComputeMode string

	// MemoryPools: stream-ordered allocation is supported, by the device and
	// by the driver library.
	MemoryPools bool
	// VirtualMemory: virtual memory management (cuMemMap) is supported.
	VirtualMemory bool
	// UnifiedAddressing: host and devices share one address space.
	UnifiedAddressing bool
	// HostNativeAtomics: atomics between host and device are native.
	HostNativeAtomics bool
	ConcurrentKernels bool
	// Integrated: the device shares the host's memory.
	Integrated bool
	// ECC is on.
	ECC bool
	// MIG: the device is an instance of a partitioned GPU.
	MIG bool
}

// Attributes of a device (CUdevice_attribute).
const (
	attrMultiprocessors   = 16
	attrIntegrated        = 18
	attrComputeMode       = 20
	attrConcurrentKernels = 31
	attrECC               = 32
	attrAsyncEngines      = 40
	attrUnifiedAddressing = 41
	attrComputeMajor      = 75
	attrComputeMinor      = 76
	attrHostNativeAtomic  = 86
	attrVirtualMemory     = 102
	attrMemoryPools       = 115
)

// computeModes are the names of CUcomputemode; 1 was given up in CUDA 8.
var computeModes = map[int]string{0: "default", 2: "prohibited", 3: "exclusive-process"}

// DeviceCount returns how many devices this process sees.
func (l *Library) DeviceCount() (int, error) {
	f := newFrame()
	defer f.release()
	f.c.Args[0] = f.result(0)
	code := l.call(cuDeviceGetCount, f)
	return int(int32(f.out[0])), l.fail(cuDeviceGetCount, code)
}

// Describe describes a device. It makes no context: no memory of the device is
// taken. An ordinal that does not exist is CUDA_ERROR_INVALID_DEVICE.
func (l *Library) Describe(ordinal int) (Description, error) {
	device, err := l.device(ordinal)
	if err != nil {
		return Description{}, err
	}
	return l.describeDevice(ordinal, device)
}

// device returns the driver's handle of a device.
func (l *Library) device(ordinal int) (uintptr, error) {
	count, err := l.DeviceCount()
	if err != nil {
		return 0, err
	}
	if ordinal < 0 || ordinal >= count {
		return 0, l.noSuchDevice(ordinal, count)
	}
	f := newFrame()
	defer f.release()
	f.c.Args[0], f.c.Args[1] = f.result(0), uintptr(ordinal)
	code := l.call(cuDeviceGet, f)
	return uintptr(uint32(f.out[0])), l.fail(cuDeviceGet, code)
}

func (l *Library) noSuchDevice(ordinal, count int) error {
	err := l.driverError(cuDeviceGet, driver.InvalidDevice)
	err.Detail = fmt.Sprintf("there is no device %d: this process sees %d, numbered from 0", ordinal, count)
	if visible, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		err.Detail += fmt.Sprintf(" (CUDA_VISIBLE_DEVICES=%q)", visible)
	}
	return err
}

func (l *Library) describeDevice(ordinal int, device uintptr) (Description, error) {
	q := query{library: l, device: device}
	d := Description{
		Ordinal:           ordinal,
		Name:              q.text(cuDeviceGetName),
		TotalBytes:        q.totalBytes(),
		ComputeMajor:      q.attribute(attrComputeMajor),
		ComputeMinor:      q.attribute(attrComputeMinor),
		Multiprocessors:   q.attribute(attrMultiprocessors),
		AsyncEngines:      q.attribute(attrAsyncEngines),
		MemoryPools:       q.attribute(attrMemoryPools) != 0 && l.has(poolEntries...),
		VirtualMemory:     q.attribute(attrVirtualMemory) != 0,
		UnifiedAddressing: q.attribute(attrUnifiedAddressing) != 0,
		HostNativeAtomics: q.attribute(attrHostNativeAtomic) != 0,
		ConcurrentKernels: q.attribute(attrConcurrentKernels) != 0,
		Integrated:        q.attribute(attrIntegrated) != 0,
		ECC:               q.attribute(attrECC) != 0,
	}
	mode := q.attribute(attrComputeMode)
	if d.ComputeMode = computeModes[mode]; d.ComputeMode == "" {
		d.ComputeMode = fmt.Sprintf("mode %d", mode)
	}
	d.MIG = strings.Contains(d.Name, " MIG ")
	d.PCIBusID, d.UUID = l.busID(device), l.uuid(device, d.MIG)
	return d, q.err
}

// busID is empty where the driver cannot say: memory is allocated without it.
// CUDA writes capitals; Linux, in /sys, does not.
func (l *Library) busID(device uintptr) string {
	q := query{library: l, device: device}
	return strings.ToLower(q.text(cuDeviceGetPCIBusID))
}

// uuid is empty where the driver cannot say. The first version of the function
// is not asked then: of an instance it tells the GPU's, which would make the
// instances of a GPU one device.
func (l *Library) uuid(device uintptr, mig bool) string {
	q := query{library: l, device: device}
	return q.uuid(mig)
}
