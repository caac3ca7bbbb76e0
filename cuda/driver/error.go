package driver

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// Codes of the CUDA driver API (CUresult) that the runtime tells apart.
const (
	InvalidValue       = 1
	OutOfMemory        = 2
	Deinitialized      = 4
	StubLibrary        = 34
	DeviceUnavailable  = 46
	NoDevice           = 100
	InvalidDevice      = 101
	InvalidContext     = 201
	ECCUncorrectable   = 214
	InvalidImage       = 200
	InvalidPTX         = 218
	InvalidHandle      = 400
	IllegalState       = 401
	NotFound           = 500
	NotReady           = 600
	IllegalAddress     = 700
	LaunchResources    = 701
	LaunchTimeout      = 702
	ContextDestroyed   = 709
	Assert             = 710
	LaunchFailed       = 719
	NotPermitted       = 800
	NotSupported       = 801
	SystemNotReady     = 802
	DriverMismatch     = 803
	CompatNotSupported = 804
	CaptureUnsupported = 900
	CaptureInvalidated = 901
	CaptureMerge       = 902
	CaptureUnmatched   = 903
	CaptureUnjoined    = 904
	CaptureIsolation   = 905
	CaptureImplicit    = 906
	CapturedEvent      = 907
	Unknown            = 999
)

// NewError returns the *[core.DriverError] of a CUresult code returned by op.
func NewError(op string, code int) *core.DriverError {
	info, ok := codes[code]
	if !ok {
		info = codeInfo{name: fmt.Sprintf("CUDA_ERROR_%d", code), text: "unrecognized error code"}
	}
	return &core.DriverError{Op: op, Code: code, Name: info.name, Text: info.text,
		Sticky: info.sticky, OutOfMemory: code == OutOfMemory, Closed: code == Deinitialized}
}

// NewFault returns the error of op where the driver is writing a core dump of a kernel that faulted: it does not yet say which
// error that is, and says meanwhile of work that it is done which is not.
func NewFault(op string) *core.DriverError {
	err := NewError(op, LaunchFailed)
	err.Detail = "the driver is writing down what the device did when a kernel faulted"
	return err
}
