package drivertest

// Method names a method of driver.Driver.
type Method int

// The methods of driver.Driver that can fail, in the order in which the
// interface lists them. Ordinal cannot.
const (
	Properties Method = iota
	MemInfo
	Synchronize
	Close
	MemAlloc
	MemFree
	MemAllocAsync
	MemFreeAsync
	HostAlloc
	HostFree
	MemReserve
	MemUnreserve
	MemCreate
	MemRelease
	MemMap
	MemAccess
	MemUnmap
	MemsetAsync
	CopyToDeviceAsync
	CopyToHostAsync
	CopyOnDeviceAsync
	CopyFromPeerAsync
	StreamCreate
	StreamDestroy
	StreamQuery
	StreamSynchronize
	StreamWait
	StreamWaitPeer
	StreamBeginCapture
	StreamEndCapture
	StreamCapturing
	GraphLaunch
	GraphDestroy
	EventCreate
	EventDestroy
	EventRecord
	EventQuery
	EventSynchronize
	ModuleLoad
	ModuleUnload
	ModuleFunction
	Launch
	PoolCreate
	PoolDestroy
	PoolStats
	PoolTrim
	methodCount
)

var methodNames = [methodCount]string{
	"Properties", "MemInfo", "Synchronize", "Close",
	"MemAlloc", "MemFree", "MemAllocAsync", "MemFreeAsync", "HostAlloc", "HostFree",
	"MemReserve", "MemUnreserve", "MemCreate", "MemRelease", "MemMap", "MemAccess", "MemUnmap",
	"MemsetAsync", "CopyToDeviceAsync", "CopyToHostAsync", "CopyOnDeviceAsync", "CopyFromPeerAsync",
	"StreamCreate", "StreamDestroy", "StreamQuery", "StreamSynchronize", "StreamWait", "StreamWaitPeer",
	"StreamBeginCapture", "StreamEndCapture", "StreamCapturing", "GraphLaunch", "GraphDestroy",
	"EventCreate", "EventDestroy", "EventRecord", "EventQuery", "EventSynchronize",
	"ModuleLoad", "ModuleUnload", "ModuleFunction", "Launch",
	"PoolCreate", "PoolDestroy", "PoolStats", "PoolTrim",
}

// Methods lists all methods that can fail.
func Methods() []Method {
	all := make([]Method, methodCount)
	for i := range all {
		all[i] = Method(i)
	}
	return all
}

// String returns the method's name.
func (m Method) String() string {
	if m < 0 || m >= methodCount {
		return "none"
	}
	return methodNames[m]
}
