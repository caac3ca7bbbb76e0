//go:build linux && (amd64 || arm64)

package nvml

import (
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memoryLimits is nvmlGetMemoryLimits_v1_t.
type memoryLimits struct {
	namespace        *byte
	soft, hard, used uint64
}

// limitsCall came with CUDA 13.4 (driver r615).
const limitsCall = "nvmlDeviceGetMemoryLimits_v1"

// Limits reads the limits of control groups on a device's memory. It is safe for concurrent use.
type Limits struct {
	library library
	device  uintptr
}

// OpenLimits opens the library for a device, by its UUID. It returns nil if it is not there, lacks the
// call, which it does before driver r615, or does not know the device; the library is not initialised
// for the sake of a call that it lacks. Names are as of [Read]. It may block, as the driver's own
// initialisation does.
func OpenLimits(uuid string, names ...string) *Limits {
	lib, err := open(names)
	if err != nil || !lib.has(limitsCall) || lib.call("nvmlInit_v2") != success {
		return nil
	}
	l := &Limits{library: lib}
	name, err := unix.BytePtrFromString(uuid)
	if err != nil || lib.call("nvmlDeviceGetHandleByUUID", uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&l.device))) != success {
		l.Close()
		return nil
	}
	return l
}

// Of is the hard limit of a control group, by its folder, and what is used of it, in bytes. It is not
// ok where there is none, or none can be told: of a MIG instance, for example. It may block in the driver.
func (l *Limits) Of(group string) (hard, used uint64, ok bool) {
	name, err := unix.BytePtrFromString(group)
	if err != nil {
		return 0, 0, false
	}
	limits := &memoryLimits{namespace: name}
	ok = l.library.call(limitsCall, l.device, uintptr(unsafe.Pointer(limits))) == success && limits.hard != math.MaxUint64
	return limits.hard, limits.used, ok
}

// Close gives the library up.
func (l *Limits) Close() { l.library.call("nvmlShutdown") }
