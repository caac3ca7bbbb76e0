package libcuda_test

import (
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// stranger captures a stream in the global mode, on a thread of its own and by
// the driver's own functions, as another library in the process does.
type stranger struct {
	*fake
	stream driver.Stream
	do     chan func()
}

func newStranger(f *fake, d *libcuda.Device) *stranger {
	f.Helper()
	s, err := d.StreamCreate()
	must(f, err)
	x := &stranger{fake: f, stream: s, do: make(chan func())}
	go func() {
		runtime.LockOSThread() // the thread is not used again
		for f := range x.do {
			f()
		}
	}()
	f.Cleanup(func() { close(x.do); must(f, d.StreamDestroy(s)) })
	equal(f, "making the context current", x.ask("cuCtxPushCurrent_v2", uintptr(f.foreign(0))), 0)
	return x
}

// ask calls a function of the driver on the stranger's thread.
func (x *stranger) ask(function string, args ...uintptr) (code uint64) {
	x.Helper()
	done := make(chan struct{})
	x.do <- func() {
		defer close(done)
		code = x.control(function, args...) & 0xffffffff
	}
	<-done
	return code
}

func (x *stranger) begin() {
	x.Helper()
	equal(x, "beginning the stranger's capture", x.ask("cuStreamBeginCapture_v2", uintptr(x.stream), 0), 0)
}

// end ends the capture and reports whether anybody has disturbed it.
func (x *stranger) end() (disturbed bool) {
	x.Helper()
	graph := new(uint64)
	sink = graph // on the heap: C gets no address on a stack
	if x.ask("cuStreamEndCapture", uintptr(x.stream), uintptr(unsafe.Pointer(graph))) != 0 {
		return true
	}
	equal(x, "destroying the stranger's graph", x.ask("cuGraphDestroy", uintptr(*graph)), 0)
	return false
}

// undisturbed makes every call of the table beside the stranger's capture, but
// those that CUDA prohibits in every mode.
func (x *stranger) undisturbed(calls []apiCall) {
	x.Helper()
	for _, c := range calls {
		if c.name == "Synchronize" { // of a context that holds the capture
			continue
		}
		x.begin()
		err := c.run()
		switch disturbed := x.end(); {
		case c.name == "HostAlloc, HostFree": // whether it may depends on the driver
			x.Logf("%s beside a global capture: %v; disturbed: %v", c.name, err, disturbed)
		case err != nil || disturbed:
			x.Errorf("%s beside a global capture: %v; disturbed: %v", c.name, err, disturbed)
		}
	}
}

func TestNoCallDisturbsACaptureOfSomebodyElse(t *testing.T) {
	for _, strict := range []int{0, 1} {
		f := newFake(t)
		b := newBench(t, f, f.open())
		x := newStranger(f, b.d)
		f.set("strict", strict)
		x.undisturbed(everyCall(b))
		f.set("strict", 0)
		b.close()
	}
}

// The check above is worth something: without the relaxed mode the same calls
// do disturb.
func TestCallsDisturbACaptureWhereTheModeCannotBeHad(t *testing.T) {
	f := newFake(t, "cuThreadExchangeStreamCaptureMode")
	b := newBench(t, f, f.open())
	defer b.close()
	x := newStranger(f, b.d)
	x.begin()
	_, err := b.d.EventQuery(b.event)
	fails(t, err, "cuEventQuery", driver.CaptureUnsupported)
	if !x.end() {
		t.Error("the fake lets a query beside a global capture pass")
	}
}

func TestTheThreadHasItsCaptureModeAgain(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range everyCall(b) {
		before := f.calls("cuThreadExchangeStreamCaptureMode")
		must(t, c.run())
		equal(t, c.name+": the thread's mode", f.control("fake_capture_mode"), 0)
		if exchanged := f.calls("cuThreadExchangeStreamCaptureMode") - before; exchanged%2 != 0 {
			t.Errorf("%s: %d exchanges", c.name, exchanged)
		}
	}
}

// TestWhatOnlyEnqueuesLeavesTheModeAlone counts, because the exchange costs as
// much as such a call.
func TestWhatOnlyEnqueuesLeavesTheModeAlone(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	before := f.calls("cuThreadExchangeStreamCaptureMode")
	for _, c := range everyCall(b) {
		switch c.name {
		case "MemsetAsync", "CopyToDeviceAsync", "CopyToHostAsync", "CopyOnDeviceAsync",
			"CopyFromPeerAsync", "StreamWait", "StreamWaitPeer", "StreamCapturing", "EventRecord", "Launch", "GraphLaunch":
			must(t, c.run())
			equal(t, c.name+": exchanges", f.calls("cuThreadExchangeStreamCaptureMode"), before)
		}
	}
}

// TestAModeThatCannotBeHadIsAnErrorAndNoCall: the call would break a capture.
func TestAModeThatCannotBeHadIsAnErrorAndNoCall(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	queries := f.calls("cuEventQuery")
	f.fail("cuThreadExchangeStreamCaptureMode", 1, newer)
	_, err := b.d.EventQuery(b.event)
	fails(t, err, "cuThreadExchangeStreamCaptureMode", newer)
	equal(t, "queries", f.calls("cuEventQuery"), queries)
	equal(t, "the thread's mode", f.control("fake_capture_mode"), 0)
}

// TestTheModeIsLeftToEachThread hammers calls in relaxed mode from goroutines
// that change threads, beside a global capture.
func TestTheModeIsLeftToEachThread(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	x := newStranger(f, b.d)
	x.begin()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				if done, err := b.d.EventQuery(b.event); err != nil || !done {
					t.Errorf("query: %v, %v", done, err)
				}
				runtime.Gosched()
				expect.Success(t, b.d.EventSynchronize(b.event))
			}
		})
	}
	group.Wait()
	equal(t, "disturbed", x.end(), false)
}

func TestAGraphThatCannotBeInstantiatedIsNotLeaked(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	before := f.books()
	f.fail("cuGraphInstantiateWithFlags", 1, driver.OutOfMemory)
	must(t, b.d.StreamBeginCapture(b.stream))
	_, err := b.d.StreamEndCapture(b.stream)
	fails(t, err, "cuGraphInstantiateWithFlags", driver.OutOfMemory)
	capturing, err := b.d.StreamCapturing(b.stream)
	if capturing || err != nil {
		t.Errorf("capturing: %v, %v", capturing, err)
	}
	equal(t, "books", f.books(), before)
	f.fail("cuGraphDestroy", 1, newer)
	_, err = captured(b.d, b.stream, func() error { return nil })
	fails(t, err, "cuGraphDestroy", newer)
	before[7]++ // the driver has kept the template
	equal(t, "books", f.books(), before)
	fails(t, b.d.GraphDestroy(0), "cuGraphExecDestroy", driver.InvalidHandle)
}
