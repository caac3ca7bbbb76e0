package libcuda

import "strings"

// entry is a function of the driver library that is used: its place in functions,
// and in the addresses that a [Library] has found.
type entry uint8

// functions are the functions of the driver library that are used.
var functions []function

type function struct {
	// symbol is the name in the library's symbol table. A function whose
	// signature changed has a version at its end; the name without one is the
	// function as it was before CUDA 3.2 or 4.0, with 32-bit sizes, and that of
	// cuGraphInstantiate the one of before CUDA 12, with an error log.
	symbol string
	// enqueues marks a call that does nothing but enqueue on the stream that it
	// names, or ask about it: a capture elsewhere is not concerned. CUDA does not list
	// what it calls unsafe; all other calls are taken to be. Those in order of a stream
	// that allocate and free are: that was found on an H200.
	enqueues bool
}

func newEntry(f function) entry {
	functions = append(functions, f)
	return entry(len(functions) - 1)
}

func calls(symbol string) entry { return newEntry(function{symbol: symbol}) }

func enqueues(symbol string) entry { return newEntry(function{symbol: symbol, enqueues: true}) }

var (
	cuInit                            = calls("cuInit")
	cuDriverGetVersion                = calls("cuDriverGetVersion")
	cuGetErrorName                    = calls("cuGetErrorName")
	cuGetErrorString                  = calls("cuGetErrorString")
	cuDeviceGetCount                  = calls("cuDeviceGetCount")
	cuDeviceGet                       = calls("cuDeviceGet")
	cuDeviceGetName                   = calls("cuDeviceGetName")
	cuDeviceGetUUID                   = calls("cuDeviceGetUuid_v2")
	cuDeviceGetPCIBusID               = calls("cuDeviceGetPCIBusId")
	cuDeviceGetAttribute              = calls("cuDeviceGetAttribute")
	cuDeviceTotalMem                  = calls("cuDeviceTotalMem_v2")
	cuDeviceGetDefaultMemPool         = calls("cuDeviceGetDefaultMemPool")
	cuDevicePrimaryCtxRetain          = calls("cuDevicePrimaryCtxRetain")
	cuDevicePrimaryCtxRelease         = calls("cuDevicePrimaryCtxRelease_v2")
	cuDevicePrimaryCtxGetState        = calls("cuDevicePrimaryCtxGetState")
	cuCoredumpGetAttributeGlobal      = calls("cuCoredumpGetAttributeGlobal")
	cuCoredumpSetAttributeGlobal      = calls("cuCoredumpSetAttributeGlobal")
	cuCtxPushCurrent                  = calls("cuCtxPushCurrent_v2")
	cuCtxPopCurrent                   = calls("cuCtxPopCurrent_v2")
	cuCtxSynchronize                  = calls("cuCtxSynchronize")
	cuMemGetInfo                      = calls("cuMemGetInfo_v2")
	cuMemAlloc                        = calls("cuMemAlloc_v2")
	cuMemFree                         = calls("cuMemFree_v2")
	cuMemAllocFromPoolAsync           = calls("cuMemAllocFromPoolAsync")
	cuMemFreeAsync                    = calls("cuMemFreeAsync")
	cuMemHostAlloc                    = calls("cuMemHostAlloc")
	cuMemHostGetDevicePointer         = calls("cuMemHostGetDevicePointer_v2")
	cuMemFreeHost                     = calls("cuMemFreeHost")
	cuMemGetAllocationGranularity     = calls("cuMemGetAllocationGranularity")
	cuMemAddressReserve               = calls("cuMemAddressReserve")
	cuMemAddressFree                  = calls("cuMemAddressFree")
	cuMemCreate                       = calls("cuMemCreate")
	cuMemRelease                      = calls("cuMemRelease")
	cuMemMap                          = calls("cuMemMap")
	cuMemSetAccess                    = calls("cuMemSetAccess")
	cuMemUnmap                        = calls("cuMemUnmap")
	cuMemsetD8Async                   = enqueues("cuMemsetD8Async")
	cuMemcpyHtoDAsync                 = enqueues("cuMemcpyHtoDAsync_v2")
	cuMemcpyDtoHAsync                 = enqueues("cuMemcpyDtoHAsync_v2")
	cuMemcpyDtoDAsync                 = enqueues("cuMemcpyDtoDAsync_v2")
	cuMemcpyPeerAsync                 = enqueues("cuMemcpyPeerAsync")
	cuStreamCreate                    = calls("cuStreamCreate")
	cuStreamDestroy                   = calls("cuStreamDestroy_v2")
	cuStreamQuery                     = calls("cuStreamQuery")
	cuStreamSynchronize               = calls("cuStreamSynchronize")
	cuStreamWaitEvent                 = enqueues("cuStreamWaitEvent")
	cuStreamIsCapturing               = enqueues("cuStreamIsCapturing")
	cuStreamGetID                     = enqueues("cuStreamGetId")
	cuStreamBeginCapture              = enqueues("cuStreamBeginCapture_v2")
	cuStreamEndCapture                = enqueues("cuStreamEndCapture")
	cuThreadExchangeStreamCaptureMode = calls("cuThreadExchangeStreamCaptureMode")
	cuGraphInstantiate                = calls("cuGraphInstantiateWithFlags")
	cuGraphDestroy                    = calls("cuGraphDestroy")
	cuGraphLaunch                     = enqueues("cuGraphLaunch")
	cuGraphExecDestroy                = calls("cuGraphExecDestroy")
	cuEventCreate                     = calls("cuEventCreate")
	cuEventDestroy                    = calls("cuEventDestroy_v2")
	cuEventRecord                     = enqueues("cuEventRecord")
	cuEventQuery                      = calls("cuEventQuery")
	cuEventSynchronize                = calls("cuEventSynchronize")
	cuEventElapsedTime                = calls("cuEventElapsedTime")
	cuModuleLoadDataEx                = calls("cuModuleLoadDataEx")
	cuModuleUnload                    = calls("cuModuleUnload")
	cuModuleGetFunction               = calls("cuModuleGetFunction")
	cuLaunchKernel                    = enqueues("cuLaunchKernel")
	cuMemPoolCreate                   = calls("cuMemPoolCreate")
	cuMemPoolDestroy                  = calls("cuMemPoolDestroy")
	cuMemPoolGetAttribute             = calls("cuMemPoolGetAttribute")
	cuMemPoolSetAttribute             = calls("cuMemPoolSetAttribute")
	cuMemPoolTrimTo                   = calls("cuMemPoolTrimTo")
)

// symbol is the name in the library.
func (e entry) symbol() string { return functions[e].symbol }

// String is the name in CUDA's documentation, which errors carry.
func (e entry) String() string { return strings.TrimSuffix(e.symbol(), "_v2") }
