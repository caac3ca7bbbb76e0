package drivertest_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *sim.Device {
	t.Helper()
	d := must.Get(sim.Open(sim.Config{Bytes: 256 << 20}))(t)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestFaultsWithoutPlansChangeNothing(t *testing.T) {
	drivertest.Conformance(t, func(t *testing.T) driver.Driver { return drivertest.NewFaults(open(t)) })
}

// everyMethod calls each method that can fail once, ignoring what it answers.
func everyMethod(d driver.Driver) {
	_, _ = d.Properties()
	_, _, _ = d.MemInfo()
	s, _ := d.StreamCreate()
	e, _ := d.EventCreate()
	p, _ := d.PoolCreate(driver.PoolConfig{})
	ptr, _ := d.MemAllocAsync(64, p, s)
	_ = d.MemsetAsync(ptr, 0, 64, s)
	_ = d.CopyToDeviceAsync(ptr, make([]byte, 64), s)
	_ = d.CopyToHostAsync(make([]byte, 64), ptr, s)
	_ = d.CopyOnDeviceAsync(ptr, ptr+32, 32, s)
	_ = d.CopyFromPeerAsync(ptr, d, ptr+32, 32, s)
	_ = d.EventRecord(e, s)
	_ = d.StreamWait(s, e)
	_ = d.StreamWaitPeer(s, d, e)
	_, _ = d.EventQuery(e)
	_ = d.EventSynchronize(e)
	_, _ = d.StreamQuery(s)
	_ = d.StreamSynchronize(s)
	_ = d.StreamBeginCapture(s)
	_, _ = d.StreamCapturing(s)
	g, _ := d.StreamEndCapture(s)
	_ = d.GraphLaunch(g, s)
	_ = d.GraphDestroy(g)
	m, _ := d.ModuleLoad(guardkernels.Image())
	f, _ := d.ModuleFunction(m, driver.GuardFillKernel)
	_ = d.Launch(&driver.Launch{Function: f, Stream: s, Args: []driver.Arg{driver.Ptr(ptr), driver.U32(0)}})
	_ = d.MemFreeAsync(ptr, s)
	_ = d.ModuleUnload(m)
	direct, _ := d.MemAlloc(64)
	_ = d.MemFree(direct)
	h, _ := d.HostAlloc(64)
	_ = d.HostFree(h)
	addresses, _ := d.MemReserve(2 << 20)
	memory, _ := d.MemCreate(2 << 20)
	_ = d.MemMap(addresses, 2<<20, memory)
	_ = d.MemAccess(addresses, 2<<20)
	_ = d.MemUnmap(addresses, 2<<20)
	_ = d.MemRelease(memory)
	_ = d.MemUnreserve(addresses, 2<<20)
	_, _ = d.PoolStats(p)
	_ = d.PoolTrim(p, 0)
	_ = d.PoolDestroy(p)
	timed, _ := d.TimingEventCreate()
	_, _ = d.EventElapsed(timed, timed)
	_ = d.EventDestroy(e)
	_ = d.StreamDestroy(s)
	_ = d.Synchronize()
	_ = d.Close()
}

func TestEveryMethodCanBeMadeToFail(t *testing.T) {
	for _, m := range drivertest.Methods() {
		t.Run(string(m), func(t *testing.T) {
			f := drivertest.NewFaults(open(t))
			f.FailMethod(m, 1, driver.Unknown)
			f.SetLog(true)
			everyMethod(f)
			if f.Calls(m) != 1 || f.Failed(m) != 1 {
				t.Fatalf("%d calls, %d failed:\n%s", f.Calls(m), f.Failed(m), f.Coverage())
			}
			if f.Total() != uint64(len(drivertest.Methods())) {
				t.Errorf("%d calls in all, want each method once:\n%s", f.Total(), f.Coverage())
			}
			for _, c := range f.Log() {
				if c.Method == m && !c.Failed {
					t.Errorf("the log misses the failure: %+v", c)
				}
			}
		})
	}
}

func TestFailCallCountsOverAllMethods(t *testing.T) {
	f := drivertest.NewFaults(open(t))
	f.FailCall(3, driver.OutOfMemory)
	_, err1 := f.Properties()
	_, _, err2 := f.MemInfo()
	_, err3 := f.StreamCreate()
	_, err4 := f.StreamCreate()
	if err1 != nil || err2 != nil || err4 != nil || !errors.Is(err3, core.ErrOutOfMemory) {
		t.Errorf("got %v, %v, %v, %v; want the third to fail", err1, err2, err3, err4)
	}
	f.FailEvery(drivertest.MemInfo, driver.Unknown)
	for range 2 {
		if _, _, err := f.MemInfo(); !errors.Is(err, core.ErrDriver) || !strings.Contains(err.Error(), "injected") {
			t.Errorf("got %v", err)
		}
	}
	f.Clear()
	if _, _, err := f.MemInfo(); err != nil {
		t.Errorf("after Clear: %v", err)
	}
}

func TestDroppedWaitsDoNotReachTheDriver(t *testing.T) {
	d := open(t)
	f := drivertest.NewFaults(d)
	s, _ := f.StreamCreate()
	e, _ := f.EventCreate()
	f.SetLog(true)
	f.DropWait(2)
	for range 3 {
		must.Do(t, f.StreamWait(s, e))
	}
	f.DropWaits(true)
	_ = f.StreamWait(s, e)
	if got := d.Calls()["StreamWait"]; got != 2 {
		t.Errorf("%d waits reached the driver, want 2", got)
	}
	var dropped []bool
	for _, c := range f.Log() {
		dropped = append(dropped, c.Dropped)
	}
	if want := []bool{false, true, false, true}; !slices.Equal(dropped, want) {
		t.Errorf("log says dropped %v, want %v", dropped, want)
	}
}

func TestNullGivesUniqueAddresses(t *testing.T) {
	d := &drivertest.Null{Number: 3}
	if d.Ordinal() != 3 {
		t.Error("the ordinal is lost")
	}
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 1000 {
				ptr, _ := d.MemAllocAsync(100, 0, 0)
				mu.Lock()
				if seen[ptr] || ptr == 0 || ptr%core.DefaultAlign != 0 {
					t.Errorf("address %#x", ptr)
				}
				seen[ptr] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
}

func TestNullAllocatesNothing(t *testing.T) {
	d := &drivertest.Null{}
	everyMethod(d)
	l := &driver.Launch{}
	allocs := testing.AllocsPerRun(100, func() {
		ptr, _ := d.MemAllocAsync(100, 0, 0)
		_ = d.Launch(l)
		_ = d.EventRecord(1, 0)
		_ = d.StreamWait(0, 1)
		_, _ = d.EventQuery(1)
		_ = d.MemFreeAsync(ptr, 0)
	})
	if allocs != 0 {
		t.Errorf("%v allocations a launch", allocs)
	}
}

func BenchmarkNull(b *testing.B) {
	d := &drivertest.Null{}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ptr, _ := d.MemAllocAsync(100, 0, 0)
			_ = d.EventRecord(1, 0)
			_ = d.MemFreeAsync(ptr, 0)
		}
	})
}

func BenchmarkFaultsWithoutPlans(b *testing.B) {
	f := drivertest.NewFaults(&drivertest.Null{})
	b.ReportAllocs()
	for b.Loop() {
		_ = f.EventRecord(1, 0)
	}
}

const granule = sim.Granule

// remapOnce maps a page, maps it elsewhere, and gives all back. Each call that
// fails is made once more.
func remapOnce(t *testing.T, f *drivertest.Faults) (failed []error) {
	twice := func(call func() error) {
		t.Helper()
		err := call()
		if err == nil {
			return
		}
		failed = append(failed, err)
		if err := call(); err != nil {
			t.Fatalf("behind %v: %v", failed, err)
		}
	}
	var ptr uint64
	var h driver.MemHandle
	twice(func() (err error) { ptr, err = f.MemReserve(2 * granule); return err })
	twice(func() (err error) { h, err = f.MemCreate(granule); return err })
	for _, at := range []uint64{ptr, ptr + granule} {
		twice(func() error { return f.MemMap(at, granule, h) })
		twice(func() error { return f.MemAccess(at, granule) })
		twice(func() error { return f.MemsetAsync(at, 1, granule, 0) })
		twice(func() error { return f.Synchronize() })
		twice(func() error { return f.MemUnmap(at, granule) })
	}
	twice(func() error { return f.MemRelease(h) })
	twice(func() error { return f.MemUnreserve(ptr, 2*granule) })
	return failed
}

func TestAMappingCallThatFailsChangesNothing(t *testing.T) {
	for _, m := range []drivertest.Method{drivertest.MemReserve, drivertest.MemUnreserve, drivertest.MemCreate, drivertest.MemRelease,
		drivertest.MemMap, drivertest.MemAccess, drivertest.MemUnmap} {
		t.Run(string(m), func(t *testing.T) {
			d := open(t)
			f := drivertest.NewFaults(d)
			_ = remapOnce(t, f)
			calls := f.Calls(m)
			for k := range calls {
				f.FailMethod(m, k+1, driver.Unknown)
				if failed := remapOnce(t, f); len(failed) != 1 || !errors.Is(failed[0], core.ErrDriver) {
					t.Errorf("call %d of %d: failed %v, want the one", k+1, calls, failed)
				}
			}
			if found := d.Findings(); len(found) > 0 || d.Books() != (sim.Books{}) {
				t.Errorf("found %v, left over %+v", found, d.Books())
			}
		})
	}
}

// What was mapped before the fault is mapped, and can be taken down together;
// what was not, cannot.
func TestTheThirdOfFiveMappingsFails(t *testing.T) {
	d := open(t)
	f := drivertest.NewFaults(d)
	ptr, err := f.MemReserve(5 * granule)
	must.Do(t, err)
	f.FailMethod(drivertest.MemMap, 3, driver.OutOfMemory)
	var handles []driver.MemHandle
	for i := range uint64(5) {
		h, err := f.MemCreate(granule)
		must.Do(t, err)
		handles = append(handles, h)
		if err := f.MemMap(ptr+i*granule, granule, h); (err != nil) != (i == 2) || err != nil && !errors.Is(err, core.ErrOutOfMemory) {
			t.Fatalf("mapping %d: %v", i, err)
		}
	}
	for _, call := range []func(ptr, bytes uint64) error{f.MemAccess, f.MemUnmap} {
		if err := call(ptr, 5*granule); err == nil {
			t.Error("a range with a hole was taken for mapped")
		}
	}
	if b := d.Books(); b.Mappings != 4 || b.Handles != 5 {
		t.Errorf("the books say %+v", b)
	}
	err = errors.Join(f.MemMap(ptr+2*granule, granule, handles[2]), f.MemAccess(ptr, 5*granule), f.MemUnmap(ptr, 2*granule), f.MemUnmap(ptr+2*granule, 3*granule))
	for _, h := range handles {
		err = errors.Join(err, f.MemRelease(h))
	}
	if err := errors.Join(err, f.MemUnreserve(ptr, 5*granule)); err != nil || d.Books() != (sim.Books{}) {
		t.Errorf("%v; left over: %+v", err, d.Books())
	}
}
