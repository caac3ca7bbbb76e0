package driver

// codeInfo is what the table knows of a CUresult code. Texts are those of
// cuGetErrorString, for places where the driver cannot be asked.
type codeInfo struct {
	name, text string
	// sticky says that the context is lost. It is set where the description
	// of CUresult in the CUDA driver API reference says "any further CUDA
	// work will return the same error" and that the process must be
	// terminated and relaunched (226, 700, 702, 714 to 719, 721, 810, 911) or
	// that the context cannot be used any more (709, 710), and for hardware
	// that lost data (214, 220). 713 and 720 are refusals of one call.
	sticky bool
}

var codes = map[int]codeInfo{
	InvalidValue:       {"CUDA_ERROR_INVALID_VALUE", "invalid argument", false},
	OutOfMemory:        {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory", false},
	3:                  {"CUDA_ERROR_NOT_INITIALIZED", "initialization error", false},
	Deinitialized:      {"CUDA_ERROR_DEINITIALIZED", "driver shutting down", false},
	StubLibrary:        {"CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library", false},
	DeviceUnavailable:  {"CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable", false},
	NoDevice:           {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected", false},
	InvalidDevice:      {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal", false},
	102:                {"CUDA_ERROR_DEVICE_NOT_LICENSED", "device doesn't have valid Grid license", false},
	InvalidImage:       {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid", false},
	InvalidContext:     {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context", false},
	209:                {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device", false},
	ECCUncorrectable:   {"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered", true},
	217:                {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices", false},
	InvalidPTX:         {"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed", false},
	220:                {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error detected during the execution", true},
	221:                {"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found", false},
	222:                {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain.", false},
	223:                {"CUDA_ERROR_JIT_COMPILATION_DISABLED", "PTX JIT compilation was disabled", false},
	226:                {"CUDA_ERROR_CONTAINED", "Invalid access of peer GPU memory over nvlink or a hardware error", true},
	300:                {"CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid", false},
	301:                {"CUDA_ERROR_FILE_NOT_FOUND", "file not found", false},
	302:                {"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "shared object symbol not found", false},
	303:                {"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object initialization failed", false},
	304:                {"CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS", false},
	InvalidHandle:      {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle", false},
	IllegalState:       {"CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state", false},
	NotFound:           {"CUDA_ERROR_NOT_FOUND", "named symbol not found", false},
	NotReady:           {"CUDA_ERROR_NOT_READY", "device not ready", false},
	IllegalAddress:     {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered", true},
	LaunchResources:    {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch", false},
	LaunchTimeout:      {"CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated", true},
	704:                {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled", false},
	705:                {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled", false},
	708:                {"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cannot set while device is active in this process", false},
	ContextDestroyed:   {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed", true},
	Assert:             {"CUDA_ERROR_ASSERT", "device-side assert triggered", true},
	712:                {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped", false},
	713:                {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region", false},
	714:                {"CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error", true},
	715:                {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered", true},
	716:                {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address", true},
	717:                {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space", true},
	718:                {"CUDA_ERROR_INVALID_PC", "invalid program counter", true},
	LaunchFailed:       {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure", true},
	720:                {"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch", false},
	721:                {"CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory was not completely deallocated", true},
	NotPermitted:       {"CUDA_ERROR_NOT_PERMITTED", "operation not permitted", false},
	NotSupported:       {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported", false},
	SystemNotReady:     {"CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized", false},
	DriverMismatch:     {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination", false},
	CompatNotSupported: {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW", false},
	805:                {"CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS client failed to connect to the MPS control daemon or the MPS server", false},
	806:                {"CUDA_ERROR_MPS_RPC_FAILURE", "the remote procedural call between the MPS server and the MPS client failed", false},
	807:                {"CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS server is not ready to accept new MPS client requests", false},
	808:                {"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the hardware resources required to create MPS client have been exhausted", false},
	809:                {"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the hardware resources required to support device connections have been exhausted", false},
	810:                {"CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS client terminated by the server", true},
	CaptureUnsupported: {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing", false},
	CaptureInvalidated: {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture", false},
	CaptureMerge:       {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences", false},
	CaptureUnmatched:   {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began", false},
	CaptureUnjoined:    {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work", false},
	CaptureIsolation:   {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream", false},
	CaptureImplicit:    {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream", false},
	CapturedEvent:      {"CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream", false},
	908:                {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread", false},
	909:                {"CUDA_ERROR_TIMEOUT", "wait operation timed out", false},
	911:                {"CUDA_ERROR_EXTERNAL_DEVICE", "an async error occurred on an external device", true},
	Unknown:            {"CUDA_ERROR_UNKNOWN", "unknown error", false},
}
