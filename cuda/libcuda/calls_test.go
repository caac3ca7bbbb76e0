package libcuda_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

// bench is a device with one of everything.
type bench struct {
	*fake
	d        *libcuda.Device
	stream   driver.Stream
	event    driver.Event
	pool     driver.Pool
	module   driver.Module
	function driver.Function
	graph    driver.Graph
	ptr      uint64
}

const benchBytes = 4096

// newBench makes what can be made: a symbol may be missing.
func newBench(t testing.TB, f *fake, d *libcuda.Device) *bench {
	t.Helper()
	b := &bench{fake: f, d: d}
	b.stream, _ = d.StreamCreate()
	b.event, _ = d.EventCreate()
	b.pool, _ = d.PoolCreate(driver.PoolConfig{})
	b.ptr, _ = d.MemAlloc(benchBytes)
	b.module, _ = d.ModuleLoad(image(""))
	b.function, _ = d.ModuleFunction(b.module, "fake_echo3")
	b.graph, _ = captured(d, b.stream, func() error { return d.MemsetAsync(b.ptr, 1, 16, b.stream) })
	return b
}

func (b *bench) close() {
	b.Helper()
	must(b, b.d.GraphDestroy(b.graph))
	must(b, b.d.ModuleUnload(b.module))
	must(b, b.d.MemFree(b.ptr))
	must(b, b.d.PoolDestroy(b.pool))
	must(b, b.d.EventDestroy(b.event))
	must(b, b.d.StreamDestroy(b.stream))
}

// apiCall is a method of the driver and what it calls. It leaves nothing
// behind, whatever fails.
type apiCall struct {
	name string
	// bound: the context must be pushed.
	bound   bool
	symbols []string
	// also are symbols without which it is refused, though it calls others.
	also []string
	run  func() error
}

// made makes something and gives it back, if need be at the second try.
func made[T any](create func() (T, error), destroy func(T) error) func() error {
	return func() error {
		v, err := create()
		if err != nil {
			return err
		}
		if err = destroy(v); err != nil {
			_ = destroy(v)
		}
		return err
	}
}

// captured is what work enqueues on s, as a graph. The capture is over then.
func captured(d driver.Driver, s driver.Stream, work func() error) (driver.Graph, error) {
	if err := d.StreamBeginCapture(s); err != nil {
		return 0, err
	}
	err := work()
	g, endErr := d.StreamEndCapture(s)
	if capturing, _ := d.StreamCapturing(s); capturing {
		if g, again := d.StreamEndCapture(s); again == nil {
			_ = d.GraphDestroy(g)
		}
	}
	return g, errors.Join(err, endErr)
}

func second[T any](_ T, err error) error { return err }

// everyCall is every method of the driver that can fail.
func everyCall(b *bench) []apiCall {
	d, buffer := b.d, make([]byte, 16)
	return []apiCall{
		{"MemInfo", true, []string{"cuMemGetInfo_v2"}, nil, func() error { _, _, err := d.MemInfo(); return err }},
		{"Synchronize", true, []string{"cuCtxSynchronize"}, nil, d.Synchronize},
		{"MemAlloc, MemFree", true, []string{"cuMemAlloc_v2", "cuMemFree_v2"}, nil,
			made(func() (uint64, error) { return d.MemAlloc(64) }, d.MemFree)},
		{"MemAllocAsync, MemFreeAsync", false, []string{"cuMemAllocFromPoolAsync", "cuMemFreeAsync"},
			[]string{"cuDeviceGetDefaultMemPool", "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolGetAttribute", "cuMemPoolSetAttribute"},
			made(func() (uint64, error) { return d.MemAllocAsync(64, 0, b.stream) }, func(p uint64) error { return d.MemFreeAsync(p, b.stream) })},
		{"HostAlloc, HostFree", true, []string{"cuMemHostAlloc", "cuMemHostGetDevicePointer_v2", "cuMemFreeHost"}, nil,
			made(func() (driver.HostMemory, error) { return d.HostAlloc(64) }, d.HostFree)},
		{"MemReserve, MemUnreserve", true, []string{"cuMemAddressReserve", "cuMemAddressFree"}, mapSymbols,
			made(func() (uint64, error) { return d.MemReserve(mapBytes) }, func(p uint64) error { return d.MemUnreserve(p, mapBytes) })},
		{"MemCreate, MemRelease", true, []string{"cuMemCreate", "cuMemRelease"}, mapSymbols,
			made(func() (driver.MemHandle, error) { return d.MemCreate(mapBytes) }, d.MemRelease)},
		{"MemMap, MemAccess, MemUnmap", true, []string{"cuMemMap", "cuMemSetAccess", "cuMemUnmap"}, mapSymbols, func() error { return b.mapOnce() }},
		{"MemsetAsync", false, []string{"cuMemsetD8Async"}, nil, func() error { return d.MemsetAsync(b.ptr, 1, 16, b.stream) }},
		{"CopyToDeviceAsync", false, []string{"cuMemcpyHtoDAsync_v2"}, nil, func() error { return d.CopyToDeviceAsync(b.ptr, buffer, b.stream) }},
		{"CopyToHostAsync", false, []string{"cuMemcpyDtoHAsync_v2"}, nil, func() error { return d.CopyToHostAsync(buffer, b.ptr, b.stream) }},
		{"CopyOnDeviceAsync", false, []string{"cuMemcpyDtoDAsync_v2"}, nil, func() error { return d.CopyOnDeviceAsync(b.ptr, b.ptr+64, 16, b.stream) }},
		{"CopyFromPeerAsync", false, []string{"cuMemcpyPeerAsync"}, nil, func() error { return d.CopyFromPeerAsync(b.ptr, d, b.ptr+64, 16, b.stream) }},
		{"StreamCreate, StreamDestroy", true, []string{"cuStreamCreate", "cuStreamDestroy_v2"}, nil, made(d.StreamCreate, d.StreamDestroy)},
		{"StreamQuery", false, []string{"cuStreamQuery"}, nil, func() error { return second(d.StreamQuery(b.stream)) }},
		{"StreamSynchronize", false, []string{"cuStreamSynchronize"}, nil, func() error { return d.StreamSynchronize(b.stream) }},
		{"StreamWait", false, []string{"cuStreamWaitEvent"}, nil, func() error { return d.StreamWait(b.stream, b.event) }},
		{"StreamWaitPeer", false, []string{"cuStreamWaitEvent"}, nil, func() error { return d.StreamWaitPeer(b.stream, d, b.event) }},
		{"StreamCapturing", false, []string{"cuStreamIsCapturing"}, nil, func() error { return second(d.StreamCapturing(b.stream)) }},
		{"StreamID", false, []string{"cuStreamGetId"}, nil, func() error { return second(d.StreamID(b.stream)) }},
		{"StreamBeginCapture, StreamEndCapture, GraphDestroy", true,
			[]string{"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphExecDestroy"}, []string{"cuGraphDestroy", "cuGraphLaunch", "cuStreamIsCapturing"},
			made(func() (driver.Graph, error) { return captured(d, b.stream, func() error { return nil }) }, d.GraphDestroy)},
		{"GraphLaunch", false, []string{"cuGraphLaunch"}, nil, func() error { return d.GraphLaunch(b.graph, b.stream) }},
		{"EventCreate, EventDestroy", true, []string{"cuEventCreate", "cuEventDestroy_v2"}, nil, made(d.EventCreate, d.EventDestroy)},
		{"TimingEventCreate", true, []string{"cuEventCreate"}, []string{"cuEventDestroy_v2"}, made(d.TimingEventCreate, d.EventDestroy)},
		{"EventElapsed", true, []string{"cuEventElapsedTime"}, []string{"cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuEventDestroy_v2"}, b.elapsed},
		{"EventRecord", false, []string{"cuEventRecord"}, nil, func() error { return d.EventRecord(b.event, b.stream) }},
		{"EventQuery", false, []string{"cuEventQuery"}, nil, func() error { return second(d.EventQuery(b.event)) }},
		{"EventSynchronize", false, []string{"cuEventSynchronize"}, nil, func() error { return d.EventSynchronize(b.event) }},
		{"ModuleLoad, ModuleUnload", true, []string{"cuModuleLoadDataEx", "cuModuleUnload"}, nil,
			made(func() (driver.Module, error) { return d.ModuleLoad(image("")) }, d.ModuleUnload)},
		{"ModuleFunction", true, []string{"cuModuleGetFunction"}, nil, func() error { return second(d.ModuleFunction(b.module, "fake_echo3")) }},
		{"Launch", false, []string{"cuLaunchKernel"}, nil, func() error { return d.Launch(b.launch()) }},
		{"PoolCreate, PoolDestroy", false, []string{"cuMemPoolCreate", "cuMemPoolSetAttribute", "cuMemPoolDestroy"}, nil,
			made(func() (driver.Pool, error) {
				return d.PoolCreate(driver.PoolConfig{ReleaseThreshold: 1, Disable: driver.ReuseAll})
			}, d.PoolDestroy)},
		{"PoolStats", false, []string{"cuMemPoolGetAttribute"}, nil, func() error { return second(d.PoolStats(b.pool)) }},
		{"PoolTrim", false, []string{"cuMemPoolTrimTo"}, nil, func() error { return d.PoolTrim(b.pool, 0) }},
	}
}

const mapBytes = 4 << 20

// mapSymbols are all needed for one to be used.
var mapSymbols = []string{"cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"}

// mapOnce maps memory and unmaps it.
func (b *bench) mapOnce() error {
	ptr, err := b.d.MemReserve(mapBytes)
	if err != nil {
		return err
	}
	h, err := b.d.MemCreate(mapBytes)
	if err != nil {
		return errors.Join(err, b.d.MemUnreserve(ptr, mapBytes))
	}
	if err = b.d.MemMap(ptr, mapBytes, h); err == nil {
		err = b.d.MemAccess(ptr, mapBytes)
		unmapErr := b.d.MemUnmap(ptr, mapBytes)
		if unmapErr != nil {
			_ = b.d.MemUnmap(ptr, mapBytes)
		}
		err = errors.Join(err, unmapErr)
	}
	return errors.Join(err, b.d.MemRelease(h), b.d.MemUnreserve(ptr, mapBytes))
}

// elapsed asks for the time from a record to itself.
func (b *bench) elapsed() error {
	e, err := b.d.TimingEventCreate()
	if err != nil {
		return err
	}
	if err = b.d.EventRecord(e, b.stream); err == nil {
		err = b.d.EventSynchronize(e)
	}
	if err == nil {
		err = second(b.d.EventElapsed(e, e))
	}
	destroyErr := b.d.EventDestroy(e)
	if destroyErr != nil {
		_ = b.d.EventDestroy(e)
	}
	return errors.Join(err, destroyErr)
}

func (b *bench) launch() *driver.Launch {
	return &driver.Launch{Function: b.function, Stream: b.stream, Args: []driver.Arg{driver.Ptr(b.ptr), driver.U64(1), driver.U64(2)}}
}

func TestTheTableOfCallsReachesEverySymbol(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	for _, c := range everyCall(b) {
		for _, symbol := range c.symbols {
			before := f.calls(symbol)
			must(t, c.run())
			if f.calls(symbol) == before {
				t.Errorf("%s does not call %s", c.name, symbol)
			}
		}
	}
	must(t, armOnce(f.load()))
	for _, symbol := range libcuda.Symbols() {
		if f.calls(symbol) == 0 && symbol != "cuGetErrorName" && symbol != "cuGetErrorString" && symbol != "cuDevicePrimaryCtxRelease_v2" {
			t.Errorf("nothing calls %s", symbol)
		}
	}
}

// TestArgumentsArriveWholeAndInOrder uses values that show a lost half or a
// swapped pair. Most calls fail for them; the arguments arrive all the same.
func TestArgumentsArriveWholeAndInOrder(t *testing.T) {
	f := newFake(t)
	d := f.open()
	const a, b, c = 0xfedcba9876543210, 0x0123456789abcdef, 0x8000000100000002
	const s, e = driver.Stream(a), driver.Event(b)
	const chosen = uint64(0x5a5a5a5a5a5a5a5a) // an address that the call chooses
	buffer := make([]byte, 300)
	for _, call := range []struct {
		symbol string
		run    func()
		want   []uint64
	}{
		{"cuMemAlloc_v2", func() { _, _ = d.MemAlloc(c) }, []uint64{chosen, c}},
		{"cuMemFree_v2", func() { _ = d.MemFree(a) }, []uint64{a}},
		{"cuMemAllocFromPoolAsync", func() { _, _ = d.MemAllocAsync(c, b, s) }, []uint64{chosen, c, b, a}},
		{"cuMemFreeAsync", func() { _ = d.MemFreeAsync(b, s) }, []uint64{b, a}},
		{"cuMemHostAlloc", func() { m, _ := d.HostAlloc(77); _ = d.HostFree(m) }, []uint64{chosen, 77, 3}},
		{"cuMemAddressReserve", func() { _, _ = d.MemReserve(c) }, []uint64{chosen, c, 2 << 20, 0, 0}},
		{"cuMemAddressFree", func() { _ = d.MemUnreserve(a, c) }, []uint64{a, c}},
		{"cuMemCreate", func() { _, _ = d.MemCreate(c) }, []uint64{chosen, c, chosen, 0, 0}},
		{"cuMemRelease", func() { _ = d.MemRelease(a) }, []uint64{a}},
		{"cuMemMap", func() { _ = d.MemMap(a, c, b) }, []uint64{a, c, 0, b, 0}},
		{"cuMemSetAccess", func() { _ = d.MemAccess(a, c) }, []uint64{a, c, chosen, 1, 1, 0, 3}},
		{"cuMemUnmap", func() { _ = d.MemUnmap(a, c) }, []uint64{a, c}},
		{"cuMemsetD8Async", func() { _ = d.MemsetAsync(b, 0xfe, c, s) }, []uint64{b, 0xfe, c, a}},
		{"cuMemcpyHtoDAsync_v2", func() { _ = d.CopyToDeviceAsync(b, buffer, s) }, []uint64{b, chosen, 300, a}},
		{"cuMemcpyDtoHAsync_v2", func() { _ = d.CopyToHostAsync(buffer, b, s) }, []uint64{chosen, b, 300, a}},
		{"cuMemcpyDtoDAsync_v2", func() { _ = d.CopyOnDeviceAsync(b, c, 5<<32, s) }, []uint64{b, c, 5 << 32, a}},
		{"cuMemcpyPeerAsync", func() { _ = d.CopyFromPeerAsync(b, d, c, 5<<32, s) }, []uint64{b, chosen, c, chosen, 5 << 32, a}},
		{"cuStreamCreate", func() { h, _ := d.StreamCreate(); _ = d.StreamDestroy(h) }, []uint64{chosen, 1}},
		{"cuStreamDestroy_v2", func() { _ = d.StreamDestroy(s) }, []uint64{a}},
		{"cuStreamQuery", func() { _, _ = d.StreamQuery(s) }, []uint64{a}},
		{"cuStreamSynchronize", func() { _ = d.StreamSynchronize(s) }, []uint64{a}},
		{"cuStreamWaitEvent", func() { _ = d.StreamWait(s, e) }, []uint64{a, b, 0}},
		{"cuStreamIsCapturing", func() { _, _ = d.StreamCapturing(s) }, []uint64{a, chosen}},
		{"cuStreamBeginCapture_v2", func() { _ = d.StreamBeginCapture(s) }, []uint64{a, 2}},
		{"cuStreamEndCapture", func() { _, _ = d.StreamEndCapture(s) }, []uint64{a, chosen}},
		{"cuGraphInstantiateWithFlags", func() {
			own, _ := d.StreamCreate()
			g, _ := captured(d, own, func() error { return nil })
			_ = d.GraphDestroy(g)
			_ = d.StreamDestroy(own)
		}, []uint64{chosen, chosen, 0}},
		{"cuGraphLaunch", func() { _ = d.GraphLaunch(b, s) }, []uint64{b, a}},
		{"cuGraphExecDestroy", func() { _ = d.GraphDestroy(b) }, []uint64{b}},
		{"cuStreamGetId", func() { _, _ = d.StreamID(s) }, []uint64{a, chosen}},
		{"cuEventCreate", func() { h, _ := d.EventCreate(); _ = d.EventDestroy(h) }, []uint64{chosen, 2}},
		{"cuEventElapsedTime", func() { _, _ = d.EventElapsed(e, e) }, []uint64{chosen, b, b}},
		{"cuEventDestroy_v2", func() { _ = d.EventDestroy(e) }, []uint64{b}},
		{"cuEventRecord", func() { _ = d.EventRecord(e, s) }, []uint64{b, a}},
		{"cuEventQuery", func() { _, _ = d.EventQuery(e) }, []uint64{b}},
		{"cuEventSynchronize", func() { _ = d.EventSynchronize(e) }, []uint64{b}},
		{"cuModuleUnload", func() { _ = d.ModuleUnload(a) }, []uint64{a}},
		{"cuModuleGetFunction", func() { _, _ = d.ModuleFunction(a, "f") }, []uint64{chosen, a, chosen}},
		{"cuLaunchKernel", func() {
			_ = d.Launch(&driver.Launch{Function: b, Grid: driver.Dim{X: 2, Y: 3}, Block: driver.Dim{X: 5, Y: 6, Z: 7}, SharedBytes: 8, Stream: s})
		}, []uint64{b, 2, 3, 1, 5, 6, 7, 8, a, 0, 0}},
		{"cuMemPoolCreate", func() { p, _ := d.PoolCreate(driver.PoolConfig{MaxBytes: c}); _ = d.PoolDestroy(p) }, []uint64{chosen, chosen, 1, 0, 1, 0, c, 0}},
		{"cuMemPoolDestroy", func() { _ = d.PoolDestroy(a) }, []uint64{a}},
		{"cuMemPoolGetAttribute", func() { _, _ = d.PoolStats(a) }, []uint64{a, 7, chosen}},
		{"cuMemPoolTrimTo", func() { _ = d.PoolTrim(a, c) }, []uint64{a, c}},
	} {
		call.run()
		for i, want := range call.want {
			if got := f.arg(call.symbol, i); want != chosen && got != want || want == chosen && got == 0 {
				t.Errorf("%s: argument %d is %#x, want %#x", call.symbol, i, got, want)
			}
		}
	}
}

// TestKernelsGetTheirArguments passes few, and more than a frame has seen.
func TestKernelsGetTheirArguments(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	for _, n := range []int{3, 40, 3} {
		name := map[int]string{3: "fake_echo3", 40: "fake_echo40"}[n]
		function, err := b.d.ModuleFunction(b.module, name)
		must(t, err)
		l := driver.Launch{Function: function, Stream: b.stream}
		for i := range n {
			l.Args = append(l.Args, driver.U64(0x0123456789abcdef+uint64(i*n)))
		}
		must(t, b.d.Launch(&l))
		for i := range n {
			equal(t, name, f.control("fake_echoed", uintptr(i)), l.Args[i].Bits)
		}
	}
}

func TestAPoolIsConfiguredAsAsked(t *testing.T) {
	f := newFake(t)
	d := f.open()
	p, err := d.PoolCreate(driver.PoolConfig{ReleaseThreshold: 5 << 32, Disable: driver.ReuseOpportunistic | driver.ReuseInternalDependencies})
	must(t, err)
	for attribute, want := range map[uintptr]uint64{1: 0, 2: 1, 3: 1, 4: 5 << 32} { // a flag that was set to 0 reads 1
		equal(t, "attribute", f.control("fake_attribute", uintptr(p), attribute), want)
	}
	must(t, d.PoolDestroy(p))
}
