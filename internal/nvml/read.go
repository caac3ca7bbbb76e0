//go:build linux && (amd64 || arm64)

package nvml

import (
	"fmt"
	"unsafe"
)

// Results of the library (nvmlReturn_t) that are told apart.
const (
	success          = 0
	insufficientSize = 7
)

// pciInfo is nvmlPciInfo_t.
type pciInfo struct {
	legacy                                     [16]byte
	domain, bus, device, deviceID, subsystemID uint32
	busID                                      [32]byte
}

// memory is nvmlMemory_t.
type memory struct{ total, free, used uint64 }

// Read opens the library and asks it everything. Names are the
// libraries to try, [Library] if none are given. An error matches
// [ErrUnavailable].
func Read(names ...string) (r Reading, err error) {
	lib, err := open(names)
	if err != nil {
		return r, err
	}
	if code := lib.call("nvmlInit_v2"); code != success {
		return r, fmt.Errorf("%w: nvmlInit: %s", ErrUnavailable, lib.explain(code))
	}
	defer lib.call("nvmlShutdown")
	r.DriverVersion = lib.text("nvmlSystemGetDriverVersion")
	var count uint32
	lib.call("nvmlDeviceGetCount_v2", uintptr(unsafe.Pointer(&count)))
	for i := range count {
		r.GPUs = append(r.GPUs, lib.gpu(i))
	}
	return r, nil
}

func (l library) gpu(index uint32) GPU {
	g := GPU{Index: int(index), Processes: -1}
	var handle uintptr
	if l.call("nvmlDeviceGetHandleByIndex_v2", uintptr(index), uintptr(unsafe.Pointer(&handle))) != success {
		return g // known to exist, and no more: another container's, perhaps
	}
	g.Name, g.UUID = l.text("nvmlDeviceGetName", handle), l.text("nvmlDeviceGetUUID", handle)
	var pci pciInfo
	if l.call("nvmlDeviceGetPciInfo_v3", handle, uintptr(unsafe.Pointer(&pci))) == success {
		g.PCIBusID = fmt.Sprintf("%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device)
	}
	var current, pending uint32
	if l.call("nvmlDeviceGetMigMode", handle, uintptr(unsafe.Pointer(&current)), uintptr(unsafe.Pointer(&pending))) == success {
		g.MIG = [...]string{"disabled", "enabled"}[min(current, 1)]
	}
	var m memory
	if l.call("nvmlDeviceGetMemoryInfo", handle, uintptr(unsafe.Pointer(&m))) == success {
		g.TotalBytes, g.UsedBytes = m.total, m.used
	}
	g.Processes = l.processes(handle)
	return g
}

// processes counts the processes with a compute context, -1 if that cannot be
// told. Asked for no entries the library says how many there are, so how an
// entry is laid out does not matter: it has 16 bytes without a version in the
// name, and 24 in _v2 and _v3. Drivers before 510 lack _v3.
func (l library) processes(handle uintptr) int {
	var count uint32
	code := l.call("nvmlDeviceGetComputeRunningProcesses_v3", handle, uintptr(unsafe.Pointer(&count)), 0)
	if code == functionNotFound {
		code = l.call("nvmlDeviceGetComputeRunningProcesses_v2", handle, uintptr(unsafe.Pointer(&count)), 0)
	}
	if code != success && code != insufficientSize {
		return -1
	}
	return int(count)
}
