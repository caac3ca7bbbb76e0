package libcuda

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/legible"
)

// Description is what the driver says about a device.
type Description struct {
	// Properties are those of the device when it is open, but for the MapGranularity,
	// which takes a context.
	driver.Properties
	// Ordinal is the device's number in this process, from 0.
	Ordinal int
	// ComputeMode says who may use the device: "default",
	// "exclusive-process" or "prohibited".
	ComputeMode string

	// VirtualMemory: virtual memory management (cuMemMap) is supported.
	VirtualMemory bool
	// ECC is on.
	ECC bool
	// MIG: the device is an instance of a partitioned GPU.
	MIG bool
}

// Attributes of a device (CUdevice_attribute).
const (
	attrMultiprocessors = 16
	attrComputeMode     = 20
	attrECC             = 32
	attrComputeMajor    = 75
	attrComputeMinor    = 76
	attrVirtualMemory   = 102
	attrMemoryPools     = 115
)

// computeModes are the names of CUcomputemode; 1 was given up in CUDA 8.
var computeModes = map[int]string{0: "default", 2: "prohibited", 3: "exclusive-process"}

// DeviceCount returns how many devices this process sees.
func (l *Library) DeviceCount() (int, error) {
	n, code := l.get(cuDeviceGetCount)
	return int(int32(n)), l.fail(cuDeviceGetCount, code)
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
	handle, code := l.get(cuDeviceGet, uintptr(ordinal))
	return uintptr(uint32(handle)), l.fail(cuDeviceGet, code)
}

func (l *Library) noSuchDevice(ordinal, count int) error {
	err := l.driverError(cuDeviceGet, driver.InvalidDevice)
	err.Detail = fmt.Sprintf("there is no device %d: this process sees %d, numbered from 0", ordinal, count)
	if visible, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		err.Detail += fmt.Sprintf(" (CUDA_VISIBLE_DEVICES=%s)", legible.Value(visible))
	}
	return err
}

func (l *Library) describeDevice(ordinal int, device uintptr) (Description, error) {
	name, err := l.text(cuDeviceGetName, device)
	number := func(e entry, args ...uintptr) uint64 {
		n, code := l.get(e, args...)
		err = cmp.Or(err, l.fail(e, code)) // the first
		return n
	}
	attribute := func(which uintptr) int { return int(int32(number(cuDeviceGetAttribute, which, device))) }
	d := Description{
		Properties: driver.Properties{
			Name:            name,
			DriverVersion:   l.version,
			ComputeMajor:    attribute(attrComputeMajor),
			ComputeMinor:    attribute(attrComputeMinor),
			Multiprocessors: attribute(attrMultiprocessors),
			TotalBytes:      number(cuDeviceTotalMem, device),
			MemoryPools:     attribute(attrMemoryPools) != 0 && l.needs(poolEntries...) == nil,
		},
		Ordinal:       ordinal,
		VirtualMemory: attribute(attrVirtualMemory) != 0,
		ECC:           attribute(attrECC) != 0,
		MIG:           strings.Contains(name, " MIG "),
	}
	mode := attribute(attrComputeMode)
	d.ComputeMode = cmp.Or(computeModes[mode], fmt.Sprintf("mode %d", mode))
	d.UUID = l.uuid(device, d.MIG)
	// Empty where the driver cannot say: memory is allocated without it. CUDA writes
	// capitals; Linux, in /sys, does not.
	busID, _ := l.text(cuDeviceGetPCIBusID, device)
	d.PCIBusID = strings.ToLower(busID)
	return d, err
}

// text asks a function that writes a string to a buffer.
func (l *Library) text(e entry, device uintptr) (string, error) {
	buffer := make([]byte, 256)
	f := newFrame(0, uintptr(len(buffer)), device)
	defer f.release()
	f.c.Args[0] = f.host(unsafe.Pointer(&buffer[0]))
	if code := l.call(e, f); code != codeSuccess {
		return "", l.fail(e, code)
	}
	return untilNUL(buffer), nil
}

// uuid is empty where the driver cannot say. The first version of the function
// is not asked then: of an instance it tells the GPU's, which would make the
// instances of a GPU one device.
func (l *Library) uuid(device uintptr, mig bool) string {
	id := new([16]byte)
	f := newFrame(0, device)
	defer f.release()
	f.c.Args[0] = f.host(unsafe.Pointer(id))
	if l.call(cuDeviceGetUUID, f) != codeSuccess {
		return ""
	}
	prefix := "GPU"
	if mig {
		prefix = "MIG"
	}
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// untilNUL is a buffer that C wrote a string to.
func untilNUL(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
