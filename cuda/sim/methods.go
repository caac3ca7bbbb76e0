package sim

import "sync/atomic"

// method numbers the calls of driver.Driver.
type method int

const (
	mProperties method = iota
	mMemInfo
	mSynchronize
	mClose
	mMemAlloc
	mMemFree
	mMemAllocAsync
	mMemFreeAsync
	mHostAlloc
	mHostFree
	mMemReserve
	mMemUnreserve
	mMemCreate
	mMemRelease
	mMemMap
	mMemAccess
	mMemUnmap
	mMemsetAsync
	mCopyToDeviceAsync
	mCopyToHostAsync
	mCopyOnDeviceAsync
	mCopyFromPeerAsync
	mStreamCreate
	mStreamDestroy
	mStreamQuery
	mStreamSynchronize
	mStreamWait
	mStreamWaitPeer
	mStreamBeginCapture
	mStreamEndCapture
	mStreamCapturing
	mGraphLaunch
	mGraphDestroy
	mEventCreate
	mEventDestroy
	mEventRecord
	mEventQuery
	mEventSynchronize
	mModuleLoad
	mModuleUnload
	mModuleFunction
	mLaunch
	mPoolCreate
	mPoolDestroy
	mPoolStats
	mPoolTrim
	methodCount
)

// methods names each call and the CUDA entry point that it stands for.
var methods = [methodCount]struct{ name, entry string }{
	mProperties:         {"Properties", "cuDeviceGetAttribute"},
	mMemInfo:            {"MemInfo", "cuMemGetInfo"},
	mSynchronize:        {"Synchronize", "cuCtxSynchronize"},
	mClose:              {"Close", "cuDevicePrimaryCtxRelease"},
	mMemAlloc:           {"MemAlloc", "cuMemAlloc"},
	mMemFree:            {"MemFree", "cuMemFree"},
	mMemAllocAsync:      {"MemAllocAsync", "cuMemAllocFromPoolAsync"},
	mMemFreeAsync:       {"MemFreeAsync", "cuMemFreeAsync"},
	mHostAlloc:          {"HostAlloc", "cuMemHostAlloc"},
	mHostFree:           {"HostFree", "cuMemFreeHost"},
	mMemReserve:         {"MemReserve", "cuMemAddressReserve"},
	mMemUnreserve:       {"MemUnreserve", "cuMemAddressFree"},
	mMemCreate:          {"MemCreate", "cuMemCreate"},
	mMemRelease:         {"MemRelease", "cuMemRelease"},
	mMemMap:             {"MemMap", "cuMemMap"},
	mMemAccess:          {"MemAccess", "cuMemSetAccess"},
	mMemUnmap:           {"MemUnmap", "cuMemUnmap"},
	mMemsetAsync:        {"MemsetAsync", "cuMemsetD8Async"},
	mCopyToDeviceAsync:  {"CopyToDeviceAsync", "cuMemcpyHtoDAsync"},
	mCopyToHostAsync:    {"CopyToHostAsync", "cuMemcpyDtoHAsync"},
	mCopyOnDeviceAsync:  {"CopyOnDeviceAsync", "cuMemcpyDtoDAsync"},
	mCopyFromPeerAsync:  {"CopyFromPeerAsync", "cuMemcpyPeerAsync"},
	mStreamCreate:       {"StreamCreate", "cuStreamCreate"},
	mStreamDestroy:      {"StreamDestroy", "cuStreamDestroy"},
	mStreamQuery:        {"StreamQuery", "cuStreamQuery"},
	mStreamSynchronize:  {"StreamSynchronize", "cuStreamSynchronize"},
	mStreamWait:         {"StreamWait", "cuStreamWaitEvent"},
	mStreamWaitPeer:     {"StreamWaitPeer", "cuStreamWaitEvent"},
	mStreamBeginCapture: {"StreamBeginCapture", "cuStreamBeginCapture"},
	mStreamEndCapture:   {"StreamEndCapture", "cuStreamEndCapture"},
	mStreamCapturing:    {"StreamCapturing", "cuStreamIsCapturing"},
	mGraphLaunch:        {"GraphLaunch", "cuGraphLaunch"},
	mGraphDestroy:       {"GraphDestroy", "cuGraphExecDestroy"},
	mEventCreate:        {"EventCreate", "cuEventCreate"},
	mEventDestroy:       {"EventDestroy", "cuEventDestroy"},
	mEventRecord:        {"EventRecord", "cuEventRecord"},
	mEventQuery:         {"EventQuery", "cuEventQuery"},
	mEventSynchronize:   {"EventSynchronize", "cuEventSynchronize"},
	mModuleLoad:         {"ModuleLoad", "cuModuleLoadData"},
	mModuleUnload:       {"ModuleUnload", "cuModuleUnload"},
	mModuleFunction:     {"ModuleFunction", "cuModuleGetFunction"},
	mLaunch:             {"Launch", "cuLaunchKernel"},
	mPoolCreate:         {"PoolCreate", "cuMemPoolCreate"},
	mPoolDestroy:        {"PoolDestroy", "cuMemPoolDestroy"},
	mPoolStats:          {"PoolStats", "cuMemPoolGetAttribute"},
	mPoolTrim:           {"PoolTrim", "cuMemPoolTrimTo"},
}

func (m method) entry() string { return methods[m].entry }

// counter is alone in its cache line, so that counting does not slow callers
// of different methods.
type counter struct {
	n atomic.Uint64
	_ [56]byte
}

// Calls returns how often each method of driver.Driver was called since Open,
// failed calls included. Ordinal is not counted.
func (d *Device) Calls() map[string]uint64 {
	calls := make(map[string]uint64, methodCount)
	for m := range methods {
		calls[methods[m].name] = d.calls[m].n.Load()
	}
	return calls
}

// enter begins every call: it counts it, lets an injected sticky error come
// due and refuses work for a context that is lost.
func (d *Device) enter(m method) error {
	d.calls[m].n.Add(1)
	if d.faults.stickyDue() {
		d.fail(d.faults.stickyCode(), "")
		d.kill()
	}
	return d.state(m)
}

// lock takes the device's lock for a call of m, in which the seeded schedule
// makes progress. The caller unlocks if there is no error.
func (d *Device) lock(m method) error {
	d.mu.Lock()
	if d.chooser != nil {
		d.progress()
	}
	// The context may have been lost meanwhile.
	if err := d.state(m); err != nil {
		d.mu.Unlock()
		return err
	}
	return nil
}
