package drivertest

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

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
	TimingEventCreate  Method = "TimingEventCreate"
	EventElapsed       Method = "EventElapsed"
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

// Faults wraps a driver and makes chosen calls fail without reaching it. It
// counts every call that can fail, and keeps a log of them if told to. It is
// safe for concurrent use; calls that meet no fault take no lock unless the
// log is on.
type Faults struct {
	upstream driver.Driver
	total    atomic.Uint64
	counts   map[Method]*counts
	dropNext atomic.Int64 // counts down to the wait to drop
	dropAll  atomic.Bool
	armed    atomic.Bool // there are plans
	logging  atomic.Bool

	mu    sync.Mutex
	plans []plan
	log   []Call
}

var _ driver.Driver = (*Faults)(nil)

// Call is one logged call. The fields that the method does not have are zero.
type Call struct {
	Method Method
	// Stream is the stream named; for StreamCreate the one returned.
	Stream driver.Stream
	// Event is the event named; for EventCreate the one returned.
	Event driver.Event
	// Ptr is the address named or returned: the destination of a copy.
	Ptr uint64
	// Failed says that a fault was injected or the driver failed.
	Failed bool
	// Dropped says that a wait was not passed on.
	Dropped bool
}

// counts are those of one method.
type counts struct{ calls, failed atomic.Uint64 }

// plan is a fault that waits for its call.
type plan struct {
	any    bool
	method Method
	left   uint64
	every  bool
	code   int
}

// NewFaults wraps d. Without further calls it changes nothing.
func NewFaults(d driver.Driver) *Faults {
	f := &Faults{upstream: d, counts: make(map[Method]*counts)}
	for _, m := range Methods() {
		f.counts[m] = new(counts)
	}
	return f
}

// FailCall makes the k-th call from now, counted over all methods that can
// fail, fail with code. k counts from 1.
func (f *Faults) FailCall(k uint64, code int) { f.plan(plan{any: true, left: k, code: code}) }

// FailMethod makes the k-th call of m from now fail with code. k counts from 1.
func (f *Faults) FailMethod(m Method, k uint64, code int) {
	f.plan(plan{method: m, left: k, code: code})
}

// FailEvery makes every call of m fail with code until Clear.
func (f *Faults) FailEvery(m Method, code int) {
	f.plan(plan{method: m, every: true, code: code})
}

// DropWait makes the k-th StreamWait or StreamWaitPeer from now return success without reaching
// the driver. k counts from 1; 0 disarms.
func (f *Faults) DropWait(k uint64) { f.dropNext.Store(int64(k)) }

// DropWaits makes every one of them do so while on is true.
func (f *Faults) DropWaits(on bool) { f.dropAll.Store(on) }

func (f *Faults) plan(p plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plans = append(f.plans, p)
	f.armed.Store(true)
}

// Clear forgets all faults that have not come due, dropped waits included.
// Counts and log stay.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plans = nil
	f.armed.Store(false)
	f.dropNext.Store(0)
	f.dropAll.Store(false)
}

// Total returns the number of calls so far that can fail.
func (f *Faults) Total() uint64 { return f.total.Load() }

// Calls returns the number of calls of m so far.
func (f *Faults) Calls(m Method) uint64 { return f.counts[m].calls.Load() }

// Failed returns the number of calls of m that a fault was injected into.
func (f *Faults) Failed(m Method) uint64 { return f.counts[m].failed.Load() }

// Coverage describes how often each method was called and made to fail, one
// line a method.
func (f *Faults) Coverage() string {
	var b []byte
	for _, m := range Methods() {
		b = fmt.Appendf(b, "%-18s %6d calls %6d failed\n", m, f.Calls(m), f.Failed(m))
	}
	return string(b)
}

// SetLog starts or stops the log of calls.
func (f *Faults) SetLog(on bool) { f.logging.Store(on) }

// Log returns the calls logged so far.
func (f *Faults) Log() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// due counts a call of m and returns the error to be injected into it.
func (f *Faults) due(m Method) error {
	f.total.Add(1)
	f.counts[m].calls.Add(1)
	if !f.armed.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	code := 0
	kept := f.plans[:0]
	for _, p := range f.plans {
		hit := (p.any || p.method == m) && (p.every || p.countDown())
		if hit && code == 0 {
			code = p.code
		}
		if !hit || p.every {
			kept = append(kept, p)
		}
	}
	f.plans = kept
	f.armed.Store(len(kept) > 0)
	if code == 0 {
		return nil
	}
	f.counts[m].failed.Add(1)
	err := driver.NewError(string(m), code)
	err.Detail = "injected"
	return err
}

// countDown reports whether the plan comes due with this call.
func (p *plan) countDown() bool {
	p.left--
	return p.left == 0
}

// pass makes a call unless a fault is due, and logs it.
func (f *Faults) pass(c Call, call func() error) error {
	err := f.due(c.Method)
	if err == nil {
		err = call()
	}
	f.note(c, err)
	return err
}

// wait is pass for a wait, which may be dropped.
func (f *Faults) wait(c Call, call func() error) error {
	err := f.due(c.Method)
	if err == nil {
		if c.Dropped = f.dropAll.Load() || f.dropNext.Load() > 0 && f.dropNext.Add(-1) == 0; !c.Dropped {
			err = call()
		}
	}
	f.note(c, err)
	return err
}

// answer is pass for a call that returns something; what names something new
// is logged.
func answer[T any](f *Faults, c Call, call func() (T, error)) (v T, err error) {
	if err = f.due(c.Method); err == nil {
		v, err = call()
	}
	switch v := any(v).(type) {
	case driver.Stream:
		c.Stream = v
	case driver.Event:
		c.Event = v
	case uint64:
		c.Ptr = v
	case driver.HostMemory:
		c.Ptr = v.DevicePtr
	}
	f.note(c, err)
	return v, err
}

// note logs a call.
func (f *Faults) note(c Call, err error) {
	if !f.logging.Load() {
		return
	}
	c.Failed = err != nil
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, c)
}
