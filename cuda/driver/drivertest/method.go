package drivertest

import (
	"reflect"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Method names a method of driver.Driver.
type Method string

// The methods of driver.Driver that can fail, in the order in which the
// interface lists them. Ordinal cannot.
const (
	Properties         Method = "Properties"
	MemInfo            Method = "MemInfo"
	Synchronize        Method = "Synchronize"
	Close              Method = "Close"
	MemAlloc           Method = "MemAlloc"
	MemFree            Method = "MemFree"
	MemAllocAsync      Method = "MemAllocAsync"
	MemFreeAsync       Method = "MemFreeAsync"
	HostAlloc          Method = "HostAlloc"
	HostFree           Method = "HostFree"
	MemReserve         Method = "MemReserve"
	MemUnreserve       Method = "MemUnreserve"
	MemCreate          Method = "MemCreate"
	MemRelease         Method = "MemRelease"
	MemMap             Method = "MemMap"
	MemAccess          Method = "MemAccess"
	MemUnmap           Method = "MemUnmap"
	MemsetAsync        Method = "MemsetAsync"
	CopyToDeviceAsync  Method = "CopyToDeviceAsync"
	CopyToHostAsync    Method = "CopyToHostAsync"
	CopyOnDeviceAsync  Method = "CopyOnDeviceAsync"
	CopyFromPeerAsync  Method = "CopyFromPeerAsync"
	StreamCreate       Method = "StreamCreate"
	StreamDestroy      Method = "StreamDestroy"
	StreamQuery        Method = "StreamQuery"
	StreamSynchronize  Method = "StreamSynchronize"
	StreamWait         Method = "StreamWait"
	StreamWaitPeer     Method = "StreamWaitPeer"
	StreamBeginCapture Method = "StreamBeginCapture"
	StreamEndCapture   Method = "StreamEndCapture"
	StreamCapturing    Method = "StreamCapturing"
	GraphLaunch        Method = "GraphLaunch"
	GraphDestroy       Method = "GraphDestroy"
	EventCreate        Method = "EventCreate"
	EventDestroy       Method = "EventDestroy"
	EventRecord        Method = "EventRecord"
	EventQuery         Method = "EventQuery"
	EventSynchronize   Method = "EventSynchronize"
	ModuleLoad         Method = "ModuleLoad"
	ModuleUnload       Method = "ModuleUnload"
	ModuleFunction     Method = "ModuleFunction"
	Launch             Method = "Launch"
	PoolCreate         Method = "PoolCreate"
	PoolDestroy        Method = "PoolDestroy"
	PoolStats          Method = "PoolStats"
	PoolTrim           Method = "PoolTrim"
)

// Methods lists all methods that can fail, by name.
func Methods() []Method {
	var all []Method
	for m := range reflect.TypeFor[driver.Driver]().Methods() {
		if m.Name != "Ordinal" {
			all = append(all, Method(m.Name))
		}
	}
	return all
}
