package libcuda_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// TestCallsThatNameAStreamPushNothing counts: a push that is not needed costs
// more than the call.
func TestCallsThatNameAStreamPushNothing(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	for _, c := range everyCall(b) {
		before := f.calls("cuCtxPushCurrent_v2")
		must(t, c.run())
		if pushed := f.calls("cuCtxPushCurrent_v2") > before; pushed != c.bound {
			t.Errorf("%s: pushed the context: %v, want %v", c.name, pushed, c.bound)
		}
	}
	equal(t, "pushes without a pop", f.calls("cuCtxPushCurrent_v2"), f.calls("cuCtxPopCurrent_v2"))
	equal(t, "binds", b.d.Binds(), false)
}

// TestADriverThatWantsAContextGetsOne starts each call on a device that has not
// yet learnt what its driver wants.
func TestADriverThatWantsAContextGetsOne(t *testing.T) {
	f := newFake(t)
	n := len(everyCall(newBench(t, f, f.open())))
	for i := range n {
		b := newBench(t, f, f.open())
		c := everyCall(b)[i]
		f.set("strict", 1)
		must(t, c.run())
		if !c.bound {
			equal(t, c.name+": binds", b.d.Binds(), true)
		}
		before := f.calls("cuCtxPushCurrent_v2")
		must(t, b.d.EventRecord(b.event, b.stream))
		must(t, b.d.EventRecord(b.event, b.stream))
		if pushes := f.calls("cuCtxPushCurrent_v2") - before; pushes != 2 {
			t.Errorf("%s: %d pushes for two records", c.name, pushes)
		}
		b.close()
		f.set("strict", 0)
	}
}

// TestADefaultStreamMeansTheDevicesOwn: the driver would look at the thread's.
func TestADefaultStreamMeansTheDevicesOwn(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	for _, s := range []driver.Stream{0, 1, 2} {
		b.stream = s
		for _, c := range everyCall(b) {
			if legacy := s < 2; c.name != "StreamCreate, StreamDestroy" && (!legacy || c.name != "StreamBeginCapture, StreamEndCapture, GraphDestroy") {
				must(t, c.run())
			}
		}
		b.stream = 0
	}
	equal(t, "binds", b.d.Binds(), false)
	b.stream, _ = b.d.StreamCreate()
}

// TestAnotherLibrarysContextIsLeftCurrent calls on a thread where the context
// of another device is current, with a driver that minds.
func TestAnotherLibrarysContextIsLeftCurrent(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	defer b.close()
	other, err := f.load().Open(1)
	must(t, err)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	context := uintptr(f.foreign(1))
	f.control("cuCtxPushCurrent_v2", context)
	f.set("foreign", 1)
	for _, c := range everyCall(b) {
		must(t, c.run())
		equal(t, c.name+": current context", uintptr(f.current()), context)
	}
	f.set("foreign", 0)
	equal(t, "popped context", uintptr(f.result("cuCtxPopCurrent_v2")), context)
	must(t, other.Close())
}

// foreign returns the primary context of a device, without holding it longer.
func (f *fake) foreign(device int) uint64 {
	f.Helper()
	context := f.result("cuDevicePrimaryCtxRetain", uintptr(device))
	f.control("cuDevicePrimaryCtxRelease_v2", uintptr(device))
	return context
}

// TestTheThreadIsLockedWhileTheContextIsPushed gives Go every reason to move a
// goroutine between the push and the call: it comes back from C late, and others
// have taken its processor.
func TestTheThreadIsLockedWhileTheContextIsPushed(t *testing.T) {
	f := newFake(t)
	b := newBench(t, f, f.open())
	f.set("drowsy", 500)
	var busy atomic.Bool
	busy.Store(true)
	var spinners, group sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		spinners.Go(func() {
			for busy.Load() {
				runtime.Gosched()
			}
		})
	}
	for range 8 {
		group.Go(func() {
			for range 25 {
				if err := b.d.Synchronize(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	busy.Store(false)
	spinners.Wait()
	f.set("drowsy", 0)
	b.close()
}

// TestWanderingGoroutinesLeaveNoContextBehind hammers a device whose driver
// wants a context for every call, from goroutines that change threads.
func TestWanderingGoroutinesLeaveNoContextBehind(t *testing.T) {
	for _, strict := range []int{0, 1} {
		f := newFake(t)
		b := newBench(t, f, f.open())
		f.set("strict", strict)
		records := f.calls("cuEventRecord")
		const goroutines, rounds = 16, 60
		var group sync.WaitGroup
		start := make(chan struct{})
		for g := range goroutines {
			group.Go(func() {
				<-start
				for range rounds {
					if err := wander(b, byte(g+1)); err != nil {
						t.Error(err)
						return
					}
					runtime.LockOSThread()
					equal(t, "context left current", f.current(), 0)
					runtime.UnlockOSThread()
				}
			})
		}
		close(start)
		group.Wait()
		got := f.calls("cuEventRecord") - records
		if strict == 0 {
			equal(t, "records", got, goroutines*rounds)
		} else if got < goroutines*rounds || got > goroutines*(rounds+1) { // a refusal each, at most
			t.Errorf("%d records", got)
		}
		b.close()
		equal(t, "books", f.books(), [11]uint64{0: 1})
	}
}

func wander(b *bench, value byte) (err error) {
	check := func(e error) {
		if err == nil {
			err = e
		}
	}
	s, e := b.d.StreamCreate()
	check(e)
	ev, e := b.d.EventCreate()
	check(e)
	ptr, e := b.d.MemAllocAsync(64, 0, s)
	check(e)
	check(b.d.MemsetAsync(ptr, value, 64, s))
	runtime.Gosched()
	check(b.d.EventRecord(ev, s))
	got := make([]byte, 64)
	check(b.d.CopyToHostAsync(got, ptr, s))
	check(b.d.StreamSynchronize(s))
	if got[0] != value || got[63] != value {
		b.Errorf("stream %d holds %d", value, got[0])
	}
	check(b.d.MemFreeAsync(ptr, s))
	check(b.d.EventDestroy(ev))
	check(b.d.StreamDestroy(s))
	return err
}
