package drivertest

import (
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

var _ driver.Wrapper = (*Faults)(nil)

// Unwrap is the wrapped driver.
func (f *Faults) Unwrap() driver.Driver { return f.upstream }

// Ordinal is the wrapped driver's. It is neither counted nor logged.
func (f *Faults) Ordinal() int { return f.upstream.Ordinal() }

// Properties passes the call on unless a fault is due.
func (f *Faults) Properties() (driver.Properties, error) {
	return answer(f, Call{Method: Properties}, f.upstream.Properties)
}

// MemInfo passes the call on unless a fault is due.
func (f *Faults) MemInfo() (free, total uint64, err error) {
	err = f.pass(Call{Method: MemInfo}, func() (err error) {
		free, total, err = f.upstream.MemInfo()
		return err
	})
	return free, total, err
}

// Synchronize passes the call on unless a fault is due.
func (f *Faults) Synchronize() error {
	return f.pass(Call{Method: Synchronize}, f.upstream.Synchronize)
}

// Close passes the call on unless a fault is due.
func (f *Faults) Close() error {
	return f.pass(Call{Method: Close}, f.upstream.Close)
}

// MemAlloc passes the call on unless a fault is due.
func (f *Faults) MemAlloc(bytes uint64) (ptr uint64, err error) {
	return answer(f, Call{Method: MemAlloc}, func() (uint64, error) { return f.upstream.MemAlloc(bytes) })
}

// MemFree passes the call on unless a fault is due.
func (f *Faults) MemFree(ptr uint64) error {
	return f.pass(Call{Method: MemFree, Ptr: ptr}, func() error { return f.upstream.MemFree(ptr) })
}

// MemAllocAsync passes the call on unless a fault is due.
func (f *Faults) MemAllocAsync(bytes uint64, pool driver.Pool, s driver.Stream) (ptr uint64, err error) {
	return answer(f, Call{Method: MemAllocAsync, Stream: s}, func() (uint64, error) { return f.upstream.MemAllocAsync(bytes, pool, s) })
}

// MemFreeAsync passes the call on unless a fault is due.
func (f *Faults) MemFreeAsync(ptr uint64, s driver.Stream) error {
	return f.pass(Call{Method: MemFreeAsync, Ptr: ptr, Stream: s}, func() error { return f.upstream.MemFreeAsync(ptr, s) })
}

// HostAlloc passes the call on unless a fault is due.
func (f *Faults) HostAlloc(bytes uint64) (driver.HostMemory, error) {
	return answer(f, Call{Method: HostAlloc}, func() (driver.HostMemory, error) { return f.upstream.HostAlloc(bytes) })
}

// HostFree passes the call on unless a fault is due.
func (f *Faults) HostFree(m driver.HostMemory) error {
	return f.pass(Call{Method: HostFree, Ptr: m.DevicePtr}, func() error { return f.upstream.HostFree(m) })
}

// MemReserve passes the call on unless a fault is due.
func (f *Faults) MemReserve(bytes uint64) (ptr uint64, err error) {
	return answer(f, Call{Method: MemReserve}, func() (uint64, error) { return f.upstream.MemReserve(bytes) })
}

// MemUnreserve passes the call on unless a fault is due.
func (f *Faults) MemUnreserve(ptr, bytes uint64) error {
	return f.pass(Call{Method: MemUnreserve, Ptr: ptr}, func() error { return f.upstream.MemUnreserve(ptr, bytes) })
}

// MemCreate passes the call on unless a fault is due.
func (f *Faults) MemCreate(bytes uint64) (driver.MemHandle, error) {
	return answer(f, Call{Method: MemCreate}, func() (driver.MemHandle, error) { return f.upstream.MemCreate(bytes) })
}

// MemRelease passes the call on unless a fault is due.
func (f *Faults) MemRelease(h driver.MemHandle) error {
	return f.pass(Call{Method: MemRelease}, func() error { return f.upstream.MemRelease(h) })
}

// MemMap passes the call on unless a fault is due.
func (f *Faults) MemMap(ptr, bytes uint64, h driver.MemHandle) error {
	return f.pass(Call{Method: MemMap, Ptr: ptr}, func() error { return f.upstream.MemMap(ptr, bytes, h) })
}

// MemAccess passes the call on unless a fault is due.
func (f *Faults) MemAccess(ptr, bytes uint64) error {
	return f.pass(Call{Method: MemAccess, Ptr: ptr}, func() error { return f.upstream.MemAccess(ptr, bytes) })
}

// MemUnmap passes the call on unless a fault is due.
func (f *Faults) MemUnmap(ptr, bytes uint64) error {
	return f.pass(Call{Method: MemUnmap, Ptr: ptr}, func() error { return f.upstream.MemUnmap(ptr, bytes) })
}

// MemsetAsync passes the call on unless a fault is due.
func (f *Faults) MemsetAsync(ptr uint64, value byte, n uint64, s driver.Stream) error {
	return f.pass(Call{Method: MemsetAsync, Ptr: ptr, Stream: s}, func() error { return f.upstream.MemsetAsync(ptr, value, n, s) })
}

// CopyToDeviceAsync passes the call on unless a fault is due.
func (f *Faults) CopyToDeviceAsync(dst uint64, src []byte, s driver.Stream) error {
	return f.pass(Call{Method: CopyToDeviceAsync, Ptr: dst, Stream: s}, func() error { return f.upstream.CopyToDeviceAsync(dst, src, s) })
}

// CopyToHostAsync passes the call on unless a fault is due.
func (f *Faults) CopyToHostAsync(dst []byte, src uint64, s driver.Stream) error {
	return f.pass(Call{Method: CopyToHostAsync, Ptr: src, Stream: s}, func() error { return f.upstream.CopyToHostAsync(dst, src, s) })
}

// CopyOnDeviceAsync passes the call on unless a fault is due.
func (f *Faults) CopyOnDeviceAsync(dst, src, n uint64, s driver.Stream) error {
	return f.pass(Call{Method: CopyOnDeviceAsync, Ptr: dst, Stream: s}, func() error { return f.upstream.CopyOnDeviceAsync(dst, src, n, s) })
}

// CopyFromPeerAsync passes the call on unless a fault is due. peer is passed
// on as it is; a fault is this end's alone.
func (f *Faults) CopyFromPeerAsync(dst uint64, peer driver.Driver, src, n uint64, s driver.Stream) error {
	return f.pass(Call{Method: CopyFromPeerAsync, Ptr: dst, Stream: s}, func() error { return f.upstream.CopyFromPeerAsync(dst, peer, src, n, s) })
}

// StreamCreate passes the call on unless a fault is due.
func (f *Faults) StreamCreate() (driver.Stream, error) {
	return answer(f, Call{Method: StreamCreate}, f.upstream.StreamCreate)
}

// StreamDestroy passes the call on unless a fault is due.
func (f *Faults) StreamDestroy(s driver.Stream) error {
	return f.pass(Call{Method: StreamDestroy, Stream: s}, func() error { return f.upstream.StreamDestroy(s) })
}

// StreamQuery passes the call on unless a fault is due.
func (f *Faults) StreamQuery(s driver.Stream) (done bool, err error) {
	return answer(f, Call{Method: StreamQuery, Stream: s}, func() (bool, error) { return f.upstream.StreamQuery(s) })
}

// StreamSynchronize passes the call on unless a fault is due.
func (f *Faults) StreamSynchronize(s driver.Stream) error {
	return f.pass(Call{Method: StreamSynchronize, Stream: s}, func() error { return f.upstream.StreamSynchronize(s) })
}

// StreamWait passes the call on unless a fault is due or the wait is to be
// dropped.
func (f *Faults) StreamWait(s driver.Stream, e driver.Event) error {
	return f.wait(Call{Method: StreamWait, Stream: s, Event: e}, func() error { return f.upstream.StreamWait(s, e) })
}

// StreamWaitPeer passes the call on unless a fault is due or the wait is to be
// dropped.
func (f *Faults) StreamWaitPeer(s driver.Stream, peer driver.Driver, e driver.Event) error {
	return f.wait(Call{Method: StreamWaitPeer, Stream: s, Event: e}, func() error { return f.upstream.StreamWaitPeer(s, peer, e) })
}

// StreamBeginCapture passes the call on unless a fault is due.
func (f *Faults) StreamBeginCapture(s driver.Stream) error {
	return f.pass(Call{Method: StreamBeginCapture, Stream: s}, func() error { return f.upstream.StreamBeginCapture(s) })
}

// StreamEndCapture passes the call on unless a fault is due: the capture then
// goes on.
func (f *Faults) StreamEndCapture(s driver.Stream) (driver.Graph, error) {
	return answer(f, Call{Method: StreamEndCapture, Stream: s}, func() (driver.Graph, error) { return f.upstream.StreamEndCapture(s) })
}

// StreamCapturing passes the call on unless a fault is due.
func (f *Faults) StreamCapturing(s driver.Stream) (capturing bool, err error) {
	return answer(f, Call{Method: StreamCapturing, Stream: s}, func() (bool, error) { return f.upstream.StreamCapturing(s) })
}

// GraphLaunch passes the call on unless a fault is due.
func (f *Faults) GraphLaunch(g driver.Graph, s driver.Stream) error {
	return f.pass(Call{Method: GraphLaunch, Stream: s}, func() error { return f.upstream.GraphLaunch(g, s) })
}

// GraphDestroy passes the call on unless a fault is due.
func (f *Faults) GraphDestroy(g driver.Graph) error {
	return f.pass(Call{Method: GraphDestroy}, func() error { return f.upstream.GraphDestroy(g) })
}

// TimingEventCreate passes the call on unless a fault is due.
func (f *Faults) TimingEventCreate() (driver.Event, error) {
	return answer(f, Call{Method: TimingEventCreate}, f.upstream.TimingEventCreate)
}

// EventElapsed passes the call on unless a fault is due.
func (f *Faults) EventElapsed(from, to driver.Event) (time.Duration, error) {
	return answer(f, Call{Method: EventElapsed, Event: to}, func() (time.Duration, error) { return f.upstream.EventElapsed(from, to) })
}

// EventCreate passes the call on unless a fault is due.
func (f *Faults) EventCreate() (driver.Event, error) {
	return answer(f, Call{Method: EventCreate}, f.upstream.EventCreate)
}

// EventDestroy passes the call on unless a fault is due.
func (f *Faults) EventDestroy(e driver.Event) error {
	return f.pass(Call{Method: EventDestroy, Event: e}, func() error { return f.upstream.EventDestroy(e) })
}

// EventRecord passes the call on unless a fault is due.
func (f *Faults) EventRecord(e driver.Event, s driver.Stream) error {
	return f.pass(Call{Method: EventRecord, Event: e, Stream: s}, func() error { return f.upstream.EventRecord(e, s) })
}

// EventQuery passes the call on unless a fault is due.
func (f *Faults) EventQuery(e driver.Event) (done bool, err error) {
	return answer(f, Call{Method: EventQuery, Event: e}, func() (bool, error) { return f.upstream.EventQuery(e) })
}

// EventSynchronize passes the call on unless a fault is due.
func (f *Faults) EventSynchronize(e driver.Event) error {
	return f.pass(Call{Method: EventSynchronize, Event: e}, func() error { return f.upstream.EventSynchronize(e) })
}

// ModuleLoad passes the call on unless a fault is due.
func (f *Faults) ModuleLoad(i driver.Image) (driver.Module, error) {
	return answer(f, Call{Method: ModuleLoad}, func() (driver.Module, error) { return f.upstream.ModuleLoad(i) })
}

// ModuleUnload passes the call on unless a fault is due.
func (f *Faults) ModuleUnload(m driver.Module) error {
	return f.pass(Call{Method: ModuleUnload}, func() error { return f.upstream.ModuleUnload(m) })
}

// ModuleFunction passes the call on unless a fault is due.
func (f *Faults) ModuleFunction(m driver.Module, name string) (driver.Function, error) {
	return answer(f, Call{Method: ModuleFunction}, func() (driver.Function, error) { return f.upstream.ModuleFunction(m, name) })
}

// Launch passes the call on unless a fault is due.
func (f *Faults) Launch(l *driver.Launch) error {
	return f.pass(Call{Method: Launch, Stream: l.Stream}, func() error { return f.upstream.Launch(l) })
}

// PoolCreate passes the call on unless a fault is due.
func (f *Faults) PoolCreate(c driver.PoolConfig) (driver.Pool, error) {
	return answer(f, Call{Method: PoolCreate}, func() (driver.Pool, error) { return f.upstream.PoolCreate(c) })
}

// PoolDestroy passes the call on unless a fault is due.
func (f *Faults) PoolDestroy(p driver.Pool) error {
	return f.pass(Call{Method: PoolDestroy}, func() error { return f.upstream.PoolDestroy(p) })
}

// PoolStats passes the call on unless a fault is due.
func (f *Faults) PoolStats(p driver.Pool) (driver.PoolStats, error) {
	return answer(f, Call{Method: PoolStats}, func() (driver.PoolStats, error) { return f.upstream.PoolStats(p) })
}

// PoolTrim passes the call on unless a fault is due.
func (f *Faults) PoolTrim(p driver.Pool, keep uint64) error {
	return f.pass(Call{Method: PoolTrim}, func() error { return f.upstream.PoolTrim(p, keep) })
}
