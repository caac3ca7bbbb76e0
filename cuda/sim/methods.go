package sim

import "sync/atomic"

// method is a call of driver.Driver and the CUDA entry point that it stands for.
type method struct {
	index       int // in methods
	name, entry string
}

var methods []*method

func newMethod(name, entry string) *method {
	m := &method{len(methods), name, entry}
	methods = append(methods, m)
	return m
}

var (
	mProperties         = newMethod("Properties", "cuDeviceGetAttribute")
	mMemInfo            = newMethod("MemInfo", "cuMemGetInfo")
	mSynchronize        = newMethod("Synchronize", "cuCtxSynchronize")
	mClose              = newMethod("Close", "cuDevicePrimaryCtxRelease")
	mMemAlloc           = newMethod("MemAlloc", "cuMemAlloc")
	mMemFree            = newMethod("MemFree", "cuMemFree")
	mMemAllocAsync      = newMethod("MemAllocAsync", "cuMemAllocFromPoolAsync")
	mMemFreeAsync       = newMethod("MemFreeAsync", "cuMemFreeAsync")
	mHostAlloc          = newMethod("HostAlloc", "cuMemHostAlloc")
	mHostFree           = newMethod("HostFree", "cuMemFreeHost")
	mMemReserve         = newMethod("MemReserve", "cuMemAddressReserve")
	mMemUnreserve       = newMethod("MemUnreserve", "cuMemAddressFree")
	mMemCreate          = newMethod("MemCreate", "cuMemCreate")
	mMemRelease         = newMethod("MemRelease", "cuMemRelease")
	mMemMap             = newMethod("MemMap", "cuMemMap")
	mMemAccess          = newMethod("MemAccess", "cuMemSetAccess")
	mMemUnmap           = newMethod("MemUnmap", "cuMemUnmap")
	mMemsetAsync        = newMethod("MemsetAsync", "cuMemsetD8Async")
	mCopyToDeviceAsync  = newMethod("CopyToDeviceAsync", "cuMemcpyHtoDAsync")
	mCopyToHostAsync    = newMethod("CopyToHostAsync", "cuMemcpyDtoHAsync")
	mCopyOnDeviceAsync  = newMethod("CopyOnDeviceAsync", "cuMemcpyDtoDAsync")
	mCopyFromPeerAsync  = newMethod("CopyFromPeerAsync", "cuMemcpyPeerAsync")
	mStreamCreate       = newMethod("StreamCreate", "cuStreamCreate")
	mStreamDestroy      = newMethod("StreamDestroy", "cuStreamDestroy")
	mStreamQuery        = newMethod("StreamQuery", "cuStreamQuery")
	mStreamSynchronize  = newMethod("StreamSynchronize", "cuStreamSynchronize")
	mStreamWait         = newMethod("StreamWait", "cuStreamWaitEvent")
	mStreamWaitPeer     = newMethod("StreamWaitPeer", "cuStreamWaitEvent")
	mStreamBeginCapture = newMethod("StreamBeginCapture", "cuStreamBeginCapture")
	mStreamEndCapture   = newMethod("StreamEndCapture", "cuStreamEndCapture")
	mStreamCapturing    = newMethod("StreamCapturing", "cuStreamIsCapturing")
	mGraphLaunch        = newMethod("GraphLaunch", "cuGraphLaunch")
	mGraphDestroy       = newMethod("GraphDestroy", "cuGraphExecDestroy")
	mEventCreate        = newMethod("EventCreate", "cuEventCreate")
	mEventDestroy       = newMethod("EventDestroy", "cuEventDestroy")
	mEventRecord        = newMethod("EventRecord", "cuEventRecord")
	mEventQuery         = newMethod("EventQuery", "cuEventQuery")
	mEventSynchronize   = newMethod("EventSynchronize", "cuEventSynchronize")
	mTimingEventCreate  = newMethod("TimingEventCreate", "cuEventCreate")
	mEventElapsed       = newMethod("EventElapsed", "cuEventElapsedTime")
	mModuleLoad         = newMethod("ModuleLoad", "cuModuleLoadData")
	mModuleUnload       = newMethod("ModuleUnload", "cuModuleUnload")
	mModuleFunction     = newMethod("ModuleFunction", "cuModuleGetFunction")
	mLaunch             = newMethod("Launch", "cuLaunchKernel")
	mPoolCreate         = newMethod("PoolCreate", "cuMemPoolCreate")
	mPoolDestroy        = newMethod("PoolDestroy", "cuMemPoolDestroy")
	mPoolStats          = newMethod("PoolStats", "cuMemPoolGetAttribute")
	mPoolTrim           = newMethod("PoolTrim", "cuMemPoolTrimTo")
)

// counter is alone in its cache line, so that counting does not slow callers
// of different methods.
type counter struct {
	n atomic.Uint64
	_ [56]byte
}

// Calls returns how often each method of driver.Driver was called since Open,
// failed calls included. Ordinal is not counted.
func (d *Device) Calls() map[string]uint64 {
	calls := make(map[string]uint64, len(methods))
	for i, m := range methods {
		calls[m.name] = d.calls[i].n.Load()
	}
	return calls
}

// enter begins every call: it counts it, lets an injected sticky error come
// due and refuses work for a context that is lost.
func (d *Device) enter(m *method) error {
	d.calls[m.index].n.Add(1)
	if d.faults.sticky.due() {
		d.LoseContext(int(d.faults.code.Load()))
	}
	return d.state(m)
}

// begin is enter for a call that needs the device's lock; see lock.
func (d *Device) begin(m *method) error {
	d.calls[m.index].n.Add(1)
	if d.faults.sticky.due() {
		d.LoseContext(int(d.faults.code.Load()))
	}
	return d.lock(m)
}

// lock takes the device's lock for a call of m, in which the seeded schedule
// makes progress. The caller unlocks if there is no error.
func (d *Device) lock(m *method) error {
	d.mu.Lock()
	if d.chooser != nil {
		d.progress()
	}
	if d.isDead() {
		d.mu.Unlock()
		return d.state(m)
	}
	return nil
}
