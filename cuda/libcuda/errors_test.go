package libcuda_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// newer is a code that only the fake knows.
const newer = 4321

// TestEveryFailureIsReportedAndLeaksNothing makes each function that each call
// uses fail once, in both modes.
func TestEveryFailureIsReportedAndLeaksNothing(t *testing.T) {
	for _, strict := range []int{0, 1} {
		f := newFake(t)
		b := newBench(t, f, f.open())
		f.set("strict", strict)
		for _, c := range everyCall(b) {
			symbols := c.symbols
			if c.bound || strict == 1 {
				symbols = append(symbols, "cuCtxPushCurrent_v2")
			}
			must(t, c.run()) // the device learns to push
			for _, symbol := range symbols {
				before := f.books()
				f.fail(symbol, 1, newer)
				e := driverError(t, c.run(), strings.TrimSuffix(symbol, "_v2"), newer)
				equal(t, "name", e.Name, "CUDA_ERROR_NEWER_THAN_US")
				equal(t, "text", e.Text, "an error of a later driver")
				equal(t, c.name+": books after "+symbol+" failed", f.books(), before)
			}
		}
		equal(t, "binds", b.d.Binds(), strict == 1)
		b.close()
	}
}

// TestEveryKthCallOfOpeningFails fails call 1, 2, 3 and so on of opening a
// device, until none is left to fail.
func TestEveryKthCallOfOpeningFails(t *testing.T) {
	f := newFake(t)
	for k := 1; ; k++ {
		l := f.load()
		f.fail("", k, newer)
		d, err := l.Open(0)
		f.fail("", 0, 0)
		if err == nil {
			v := d.Description()
			must(t, d.Close())
			if v.UUID == "" || v.PCIBusID == "" { // without which a device can be used
				continue
			}
			if k < 17 {
				t.Errorf("only %d calls were made to fail", k-1)
			}
			return
		}
		var e *core.DriverError
		if !errors.As(err, &e) || e.Code != newer {
			t.Fatalf("call %d failed: got %v", k, err)
		}
		equal(t, "books", f.books(), [11]uint64{})
	}
}

func TestCodesBecomeErrorsThatCanBeToldApart(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	for code, want := range map[int][]error{
		driver.OutOfMemory:     {core.ErrOutOfMemory},
		driver.InvalidValue:    {},
		driver.IllegalAddress:  {core.ErrSticky},
		driver.LaunchResources: {},
		driver.Assert:          {core.ErrSticky},
		721:                    {core.ErrSticky},
		720:                    {},
	} {
		f.fail("cuMemAllocFromPoolAsync", 1, code)
		_, err := b.d.MemAllocAsync(64, 0, b.stream)
		fails(t, err, "cuMemAllocFromPoolAsync", code)
		for _, sentinel := range []error{core.ErrOutOfMemory, core.ErrSticky} {
			equal(t, err.Error(), errors.Is(err, sentinel), slices.Contains(want, sentinel))
		}
	}
	f.fail("cuMemAllocFromPoolAsync", 1, driver.OutOfMemory)
	_, err := b.d.MemAllocAsync(64, 0, b.stream)
	equal(t, "text", driverError(t, err, "cuMemAllocFromPoolAsync", driver.OutOfMemory).Text, "out of memory, says the fake")
	f.fail("cuMemAllocFromPoolAsync", 1, driver.NotFound) // the fake does not know it, the table does
	_, err = b.d.MemAllocAsync(64, 0, b.stream)
	equal(t, "name", driverError(t, err, "cuMemAllocFromPoolAsync", driver.NotFound).Name, "CUDA_ERROR_NOT_FOUND")
}

func TestNotReadyIsAnAnswer(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	f.hold(b.stream, 1)
	must(t, b.d.EventRecord(b.event, b.stream))
	for _, query := range []func() (bool, error){
		func() (bool, error) { return b.d.EventQuery(b.event) },
		func() (bool, error) { return b.d.StreamQuery(b.stream) },
	} {
		f.hold(b.stream, 1)
		must(t, b.d.EventRecord(b.event, b.stream))
		if done, err := query(); done || err != nil {
			t.Errorf("held work: done %v, error %v", done, err)
		}
		f.hold(b.stream, 0)
		if done, err := query(); !done || err != nil {
			t.Errorf("work that ran: done %v, error %v", done, err)
		}
	}
}

func TestTheCompilersWordsAreInTheError(t *testing.T) {
	d := newFake(t).open()
	_, err := d.ModuleLoad(driver.Image{Name: "broken", PTX: []byte(".entry nothing()")})
	e := driverError(t, err, "cuModuleLoadDataEx", driver.InvalidPTX)
	equal(t, "detail", e.Detail, "ptxas application ptx input, line 1; fatal   : Missing .version directive")
	if _, err = d.ModuleLoad(driver.Image{Name: "empty"}); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("an image without code: %v", err)
	}
}

func TestCodeEndsWhereItsSliceDoes(t *testing.T) {
	d := newFake(t).open()
	const own = ".version 7.4 .entry fake_echo3()"
	around := []byte(own + " .entry fake_beyond()")
	m, err := d.ModuleLoad(driver.Image{PTX: around[:len(own)]})
	must(t, err)
	_, err = d.ModuleFunction(m, "fake_beyond")
	fails(t, err, "cuModuleGetFunction", driver.NotFound)
	must(t, d.ModuleUnload(m))
}

func TestAPoolLimitNeedsADriverThatKnowsIt(t *testing.T) {
	f := newFake(t)
	f.set("version", 12010)
	d := f.open()
	_, err := d.PoolCreate(driver.PoolConfig{MaxBytes: 1 << 20})
	fails(t, err, "cuMemPoolCreate", driver.NotSupported)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "12.1") {
		t.Errorf("got %v", err)
	}
}

func TestADeviceWithoutPoolsSaysSo(t *testing.T) {
	f := newFake(t)
	f.set("pools", 0)
	d := f.open()
	p, err := d.Properties()
	must(t, err)
	equal(t, "pools", p.MemoryPools, false)
	expect.ErrorOf(d.MemAllocAsync(64, 0, 5))(t, errors.ErrUnsupported)
}

func TestADeviceIsClosedOnce(t *testing.T) {
	f := newFake(t)
	l := f.load()
	d, err := l.Open(1)
	must(t, err)
	other, err := l.Open(1)
	must(t, err)
	f.fail("cuDevicePrimaryCtxRelease_v2", 1, newer)
	fails(t, d.Close(), "cuDevicePrimaryCtxRelease", newer)
	must(t, d.Synchronize()) // an error consumes nothing
	must(t, d.Close())
	must(t, d.Close())
	equal(t, "releases", f.calls("cuDevicePrimaryCtxRelease_v2"), 2)
	_, err = d.StreamCreate()
	fails(t, err, "cuStreamCreate", driver.Deinitialized)
	_, err = d.EventQuery(1)
	fails(t, err, "cuEventQuery", driver.Deinitialized)
	must(t, other.Synchronize())
	for _, code := range []int{driver.Deinitialized, driver.InvalidContext, driver.ContextDestroyed} {
		d, err := l.Open(0)
		must(t, err)
		f.fail("cuDevicePrimaryCtxRelease_v2", 1, code)
		must(t, d.Close())
	}
	must(t, other.Close())
}

func TestPeersAreDevicesOfTheSameDriver(t *testing.T) {
	f := newFake(t)
	l := f.load()
	d := f.open()
	peer, err := l.Open(1)
	must(t, err)
	fails(t, d.CopyFromPeerAsync(0, peer, 0, 16, 5), "cuMemcpyPeerAsync", driver.InvalidValue) // of another library
	a, err := l.Open(0)
	must(t, err)
	for _, wrapped := range []driver.Driver{peer, wrapper{peer}} {
		s, err := a.StreamCreate()
		must(t, err)
		from, err := peer.MemAlloc(16)
		must(t, err)
		to, err := a.MemAlloc(16)
		must(t, err)
		e, err := peer.EventCreate()
		must(t, err)
		must(t, peer.CopyToDeviceAsync(from, []byte("over to the peer"), 0))
		must(t, peer.EventRecord(e, 0))
		must(t, a.StreamWaitPeer(s, wrapped, e))
		must(t, a.CopyFromPeerAsync(to, wrapped, from, 16, s))
		got := make([]byte, 16)
		must(t, a.CopyToHostAsync(got, to, s))
		must(t, a.StreamSynchronize(s))
		equal(t, "copy", string(got), "over to the peer")
	}
	fails(t, a.StreamWaitPeer(0, &drivertest.Null{}, 1), "cuStreamWaitEvent", driver.InvalidValue)
	must(t, peer.Close())
	fails(t, a.StreamWaitPeer(0, peer, 1), "cuStreamWaitEvent", driver.InvalidContext)
	must(t, a.Close())
}

type wrapper struct{ driver.Driver }

func (w wrapper) Unwrap() driver.Driver { return w.Driver }

// TestCopiesKeepGoMemoryAlive lets the collector run while the driver copies.
func TestCopiesKeepGoMemoryAlive(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	for i := range 200 {
		var small [16]byte // would be on the stack if nothing kept it off
		small[3] = byte(i)
		must(t, b.d.CopyToDeviceAsync(b.ptr, small[:], b.stream))
		runtime.GC()
		var back [16]byte
		must(t, b.d.CopyToHostAsync(back[:], b.ptr, b.stream))
		equal(t, "copy", back, small)
	}
}
