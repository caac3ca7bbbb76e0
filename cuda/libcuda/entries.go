package libcuda

import "strings"

// entry numbers the functions of the driver library that are used.
type entry uint8

const (
	cuInit entry = iota
	cuDriverGetVersion
	cuGetErrorName
	cuGetErrorString
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceGetUUID
	cuDeviceGetPCIBusID
	cuDeviceGetAttribute
	cuDeviceTotalMem
	cuDeviceGetDefaultMemPool
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxPushCurrent
	cuCtxPopCurrent
	cuCtxSynchronize
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemAllocFromPoolAsync
	cuMemFreeAsync
	cuMemHostAlloc
	cuMemHostGetDevicePointer
	cuMemFreeHost
	cuMemGetAllocationGranularity
	cuMemAddressReserve
	cuMemAddressFree
	cuMemCreate
	cuMemRelease
	cuMemMap
	cuMemSetAccess
	cuMemUnmap
	cuMemsetD8Async
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemcpyPeerAsync
	cuStreamCreate
	cuStreamDestroy
	cuStreamQuery
	cuStreamSynchronize
	cuStreamWaitEvent
	cuStreamIsCapturing
	cuStreamGetID
	cuStreamBeginCapture
	cuStreamEndCapture
	cuThreadExchangeStreamCaptureMode
	cuGraphInstantiate
	cuGraphDestroy
	cuGraphLaunch
	cuGraphExecDestroy
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventQuery
	cuEventSynchronize
	cuModuleLoadDataEx
	cuModuleUnload
	cuModuleGetFunction
	cuLaunchKernel
	cuMemPoolCreate
	cuMemPoolDestroy
	cuMemPoolGetAttribute
	cuMemPoolSetAttribute
	cuMemPoolTrimTo
	entryCount
)

// symbols are the names in the library's symbol table. A function whose
// signature changed has a version at its end; the name without one is the
// function as it was before CUDA 3.2 or 4.0, with 32-bit sizes, and that of
// cuGraphInstantiate the one of before CUDA 12, with an error log.
var symbols = [entryCount]string{
	cuInit:                            "cuInit",
	cuDriverGetVersion:                "cuDriverGetVersion",
	cuGetErrorName:                    "cuGetErrorName",
	cuGetErrorString:                  "cuGetErrorString",
	cuDeviceGetCount:                  "cuDeviceGetCount",
	cuDeviceGet:                       "cuDeviceGet",
	cuDeviceGetName:                   "cuDeviceGetName",
	cuDeviceGetUUID:                   "cuDeviceGetUuid_v2",
	cuDeviceGetPCIBusID:               "cuDeviceGetPCIBusId",
	cuDeviceGetAttribute:              "cuDeviceGetAttribute",
	cuDeviceTotalMem:                  "cuDeviceTotalMem_v2",
	cuDeviceGetDefaultMemPool:         "cuDeviceGetDefaultMemPool",
	cuDevicePrimaryCtxRetain:          "cuDevicePrimaryCtxRetain",
	cuDevicePrimaryCtxRelease:         "cuDevicePrimaryCtxRelease_v2",
	cuCtxPushCurrent:                  "cuCtxPushCurrent_v2",
	cuCtxPopCurrent:                   "cuCtxPopCurrent_v2",
	cuCtxSynchronize:                  "cuCtxSynchronize",
	cuMemGetInfo:                      "cuMemGetInfo_v2",
	cuMemAlloc:                        "cuMemAlloc_v2",
	cuMemFree:                         "cuMemFree_v2",
	cuMemAllocFromPoolAsync:           "cuMemAllocFromPoolAsync",
	cuMemFreeAsync:                    "cuMemFreeAsync",
	cuMemHostAlloc:                    "cuMemHostAlloc",
	cuMemHostGetDevicePointer:         "cuMemHostGetDevicePointer_v2",
	cuMemFreeHost:                     "cuMemFreeHost",
	cuMemGetAllocationGranularity:     "cuMemGetAllocationGranularity",
	cuMemAddressReserve:               "cuMemAddressReserve",
	cuMemAddressFree:                  "cuMemAddressFree",
	cuMemCreate:                       "cuMemCreate",
	cuMemRelease:                      "cuMemRelease",
	cuMemMap:                          "cuMemMap",
	cuMemSetAccess:                    "cuMemSetAccess",
	cuMemUnmap:                        "cuMemUnmap",
	cuMemsetD8Async:                   "cuMemsetD8Async",
	cuMemcpyHtoDAsync:                 "cuMemcpyHtoDAsync_v2",
	cuMemcpyDtoHAsync:                 "cuMemcpyDtoHAsync_v2",
	cuMemcpyDtoDAsync:                 "cuMemcpyDtoDAsync_v2",
	cuMemcpyPeerAsync:                 "cuMemcpyPeerAsync",
	cuStreamCreate:                    "cuStreamCreate",
	cuStreamDestroy:                   "cuStreamDestroy_v2",
	cuStreamQuery:                     "cuStreamQuery",
	cuStreamSynchronize:               "cuStreamSynchronize",
	cuStreamWaitEvent:                 "cuStreamWaitEvent",
	cuStreamIsCapturing:               "cuStreamIsCapturing",
	cuStreamGetID:                     "cuStreamGetId",
	cuStreamBeginCapture:              "cuStreamBeginCapture_v2",
	cuStreamEndCapture:                "cuStreamEndCapture",
	cuThreadExchangeStreamCaptureMode: "cuThreadExchangeStreamCaptureMode",
	cuGraphInstantiate:                "cuGraphInstantiateWithFlags",
	cuGraphDestroy:                    "cuGraphDestroy",
	cuGraphLaunch:                     "cuGraphLaunch",
	cuGraphExecDestroy:                "cuGraphExecDestroy",
	cuEventCreate:                     "cuEventCreate",
	cuEventDestroy:                    "cuEventDestroy_v2",
	cuEventRecord:                     "cuEventRecord",
	cuEventQuery:                      "cuEventQuery",
	cuEventSynchronize:                "cuEventSynchronize",
	cuModuleLoadDataEx:                "cuModuleLoadDataEx",
	cuModuleUnload:                    "cuModuleUnload",
	cuModuleGetFunction:               "cuModuleGetFunction",
	cuLaunchKernel:                    "cuLaunchKernel",
	cuMemPoolCreate:                   "cuMemPoolCreate",
	cuMemPoolDestroy:                  "cuMemPoolDestroy",
	cuMemPoolGetAttribute:             "cuMemPoolGetAttribute",
	cuMemPoolSetAttribute:             "cuMemPoolSetAttribute",
	cuMemPoolTrimTo:                   "cuMemPoolTrimTo",
}

// symbol is the name in the library.
func (e entry) symbol() string { return symbols[e] }

// String is the name in CUDA's documentation, which errors carry.
func (e entry) String() string { return strings.TrimSuffix(symbols[e], "_v2") }
