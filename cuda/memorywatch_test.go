package cuda_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

func (b *bench) watch(interval time.Duration) *cuda.MemoryWatch {
	b.Helper()
	w := cuda.WatchMemory(b.Driver, b.Async, cuda.MemoryWatchConfig{Interval: interval})
	b.Cleanup(func() { must(b, w.Close(ctx)) })
	return w
}

func TestForeignMemoryIsWhatTheBackendDoesNotHold(t *testing.T) {
	b := newBench(t)
	w := b.watch(-1)
	first := w.Last()
	if first.Read.IsZero() || first.DriftRead.IsZero() || first.Total != 512<<20 || first.Foreign != 0 {
		t.Fatalf("at the beginning: %+v", first)
	}
	x := b.leases(1)[0]
	own, isolated := b.alloc(x, 8<<20), b.isolate(x, 3<<20)
	foreign, err := b.Driver.MemAlloc(16 << 20)
	must(t, err)
	equal(t, "a reading that nobody took", w.Last(), first)
	must(t, w.Refresh())
	second := w.Last()
	equal(t, "foreign bytes", second.Foreign, 16<<20)
	if used := second.Total - second.Free; used < 27<<20 {
		t.Errorf("%d bytes are used of a device that holds 8, 3 and 16 MiB", used)
	}
	must(t, b.Driver.MemFree(foreign))
	b.free(own, isolated)
	b.drain()
	must(t, w.Refresh())
	equal(t, "foreign bytes in the end", w.Last().Foreign, 0)
	equal(t, "drift", w.Last().Drift, 0)
}

// Memory that moves while it is read is read again.
func TestAReadingIsTakenAgainWhenTheBackendMoves(t *testing.T) {
	b, m := newMeddled(t)
	w := b.watch(-1)
	var blocks []core.Block
	x := b.leases(1)[0]
	meddle := func() {
		if len(blocks) == 0 {
			blocks = append(blocks, b.alloc(x, 64<<20))
		}
	}
	m.asking.Store(&meddle)
	must(t, w.Refresh())
	equal(t, "foreign bytes", w.Last().Foreign, 0)
	m.asking.Store(nil)
	b.free(blocks...)
}

func TestWhatCannotBeReadStaysAsItWas(t *testing.T) {
	b := newBench(t)
	w := b.watch(-1)
	first := w.Last()
	for _, method := range []drivertest.Method{drivertest.MemInfo, drivertest.PoolStats} {
		b.faults.FailEvery(method, driver.InvalidValue)
		if err := w.Refresh(); !errors.Is(err, core.ErrDriver) {
			t.Errorf("%v: %v", method, err)
		}
		b.faults.Clear()
		if last := w.Last(); last.Read != first.Read || last.Free != first.Free {
			t.Errorf("%v: %+v became %+v", method, first, last)
		}
	}
	must(t, w.Refresh())
	if !w.Last().Read.After(first.Read) {
		t.Error("it is not read any more")
	}
}

func TestTheWatchReadsByItself(t *testing.T) {
	b := newBench(t)
	w := b.watch(time.Millisecond)
	first := w.Last().Read
	for deadline := time.Now().Add(patience); !w.Last().Read.After(first); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not")
		}
	}
}

// A direct backend has no pool: its blocks are not foreign, and there is no
// drift to tell.
func TestDirectBlocksAreNotForeign(t *testing.T) {
	b := newBench(t)
	direct := cuda.NewDirectResource(b.Driver)
	block, err := direct.Allocate(ctx, core.Request{Bytes: 4 << 20})
	must(t, err)
	w := cuda.WatchMemory(b.Driver, direct, cuda.MemoryWatchConfig{Interval: -1})
	defer func() { must(t, w.Close(ctx)) }()
	last := w.Last()
	if last.Foreign != 0 || last.Total-last.Free < 4<<20 || !last.DriftRead.IsZero() {
		t.Errorf("%+v", last)
	}
	_, err = direct.Deallocate(ctx, block.ID)
	must(t, err)
}

// A driver that does not answer keeps nobody from closing in time.
func TestCloseOfAWatchIsBounded(t *testing.T) {
	b, m := newMeddled(t)
	w := cuda.WatchMemory(b.Driver, b.Async, cuda.MemoryWatchConfig{Interval: time.Millisecond})
	arrived, answer := make(chan struct{}, 1), make(chan struct{})
	hang := func() {
		select {
		case arrived <- struct{}{}:
		default:
		}
		<-answer
	}
	m.asking.Store(&hang)
	<-arrived
	moment, cancel := within(10)
	defer cancel()
	if err := w.Close(moment); !errors.Is(err, moment.Err()) || err == nil {
		t.Errorf("closing while a reading hangs: %v", err)
	}
	close(answer)
	must(t, w.Close(ctx))
}

// A lost device is told of once, and not asked again.
func TestTheWatchTellsOfALostDeviceOnce(t *testing.T) {
	b, m := newMeddled(t)
	direct := cuda.NewDirectResource(m)
	lost := make(chan error, 8)
	w := cuda.WatchMemory(m, direct, cuda.MemoryWatchConfig{Interval: time.Millisecond, OnSticky: func(_ string, err error) { lost <- err }})
	defer func() { must(t, w.Close(ctx)) }()
	b.faults.FailMethod(drivertest.MemInfo, 1, driver.InvalidValue) // which loses nothing
	deadline := time.Now().Add(patience)
	for called := b.faults.Calls(drivertest.MemInfo); b.faults.Calls(drivertest.MemInfo) < called+2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not read any more")
		}
	}
	if len(lost) != 0 {
		t.Fatalf("told of %v", <-lost)
	}
	b.faults.FailMethod(drivertest.MemInfo, 1, driver.IllegalAddress)
	select {
	case err := <-lost:
		if !errors.Is(err, core.ErrSticky) {
			t.Errorf("told of %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it does not tell")
	}
	must(t, w.Close(ctx)) // its readings have ended
	if len(lost) != 0 {
		t.Errorf("told again of %v", <-lost)
	}
}
