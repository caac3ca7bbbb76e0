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
	InvalidDevice      = 101
	InvalidContext     = 201
	ECCUncorrectable   = 214
	InvalidImage       = 200
	InvalidHandle      = 400
	NotFound           = 500
	NotReady           = 600
	IllegalAddress     = 700
	LaunchTimeout      = 702
	HardwareStackError = 714
	IllegalInstruction = 715
	MisalignedAddress  = 716
	InvalidAddrSpace   = 717
	InvalidPC          = 718
	LaunchFailed       = 719
	NotSupported       = 801
	Unknown            = 999
)

type codeInfo struct {
	name, text string
	sticky     bool
}

var codes = map[int]codeInfo{
	InvalidValue:       {"CUDA_ERROR_INVALID_VALUE", "invalid argument", false},
	OutOfMemory:        {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory", false},
	Deinitialized:      {"CUDA_ERROR_DEINITIALIZED", "driver shutting down", false},
	InvalidDevice:      {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal", false},
	InvalidContext:     {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context", false},
	InvalidImage:       {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid", false},
	ECCUncorrectable:   {"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered", true},
	InvalidHandle:      {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle", false},
	NotFound:           {"CUDA_ERROR_NOT_FOUND", "named symbol not found", false},
	NotReady:           {"CUDA_ERROR_NOT_READY", "device not ready", false},
	IllegalAddress:     {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered", true},
	LaunchTimeout:      {"CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated", true},
	HardwareStackError: {"CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error", true},
	IllegalInstruction: {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered", true},
	MisalignedAddress:  {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address", true},
	InvalidAddrSpace:   {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space", true},
	InvalidPC:          {"CUDA_ERROR_INVALID_PC", "invalid program counter", true},
	LaunchFailed:       {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure", true},
	NotSupported:       {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported", false},
	Unknown:            {"CUDA_ERROR_UNKNOWN", "unknown error", false},
}

// NewError returns the *[core.DriverError] of a CUresult code returned by op.
func NewError(op string, code int) *core.DriverError {
	info, ok := codes[code]
	if !ok {
		info = codeInfo{name: fmt.Sprintf("CUDA_ERROR_%d", code), text: "unrecognized error code"}
	}
	return &core.DriverError{Op: op, Code: code, Name: info.name, Text: info.text,
		Sticky: info.sticky, OutOfMemory: code == OutOfMemory}
}
