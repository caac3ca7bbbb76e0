package gputest

import (
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/dynlib"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// captureIncrement is a graph that adds one to every word.
func (b *bench) captureIncrement(on *cuda.Lease, w *words) *cuda.Graph {
	b.Helper()
	g, err := on.Capture(ctx, "increment", []core.Use{w.Use(core.ReadWrite)}, func(driver.Stream) error { return b.increment(on, w) })
	must(b, err)
	return g
}

// A graph is launched over three streams by turns, between launches that write
// and read its block: only fences make the sum right.
func TestAGraphIsFencedAtEachOfAHundredLaunches(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	x, y, z := b.lease("x"), b.lease("y"), b.lease("z")
	w := b.alloc(x, scaled(1<<20, 1<<12), "graph")
	sum, err := b.counter(y)
	must(t, err)
	must(t, b.doWrite(y, w, 0))
	g := b.captureIncrement(z, w)
	must(t, b.doCheck(x, w, 0, sum)) // what is captured has not run
	streams := []*cuda.Lease{x, y, z}
	for i := range uint64(100) {
		must(t, g.Launch(ctx, b.Runtime, streams[i%3]))
		must(t, b.doCheck(streams[(i+1)%3], w, i+1, sum))
	}
	b.right(x, sum)
	must(t, errors.Join(w.Free(ctx), g.Close()))
}

func TestAGraphOverFreedMemoryIsRefused(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	x := b.lease("x")
	w := b.alloc(x, 1<<12, "graph")
	g := b.captureIncrement(x, w)
	must(t, b.doWrite(x, w, 0))
	must(t, g.Launch(ctx, b.Runtime, x))
	must(t, w.Free(ctx))
	next := b.alloc(x, 1<<12, "successor") // most likely where the first was
	must(t, b.doWrite(x, next, 7))
	if err := g.Launch(ctx, b.Runtime, x); !errors.Is(err, core.ErrUseAfterFree) {
		t.Errorf("got %v, want a use after free", err)
	}
	for i, word := range b.read(x, next) {
		if word != 7 {
			t.Fatalf("word %d of the successor is %d", i, word)
		}
	}
	must(t, errors.Join(next.Free(ctx), g.Close()))
}

func TestWorkOnACapturingStreamIsRefusedAndTheCaptureEndsWell(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	x, y := b.lease("x"), b.lease("y")
	w, own := b.alloc(y, 1<<12, "graph"), b.alloc(x, 1<<12, "freed in the capture")
	must(t, b.doWrite(y, w, 0))
	g, err := x.Capture(ctx, "increment", []core.Use{w.Use(core.ReadWrite)}, func(driver.Stream) error {
		refused := []error{b.doWrite(x, w, 1), b.Streams().Synchronize(ctx, x.ID()), x.Release()}
		_, err := b.tryAlloc(x, 1, "refused")
		for _, err := range append(refused, err) {
			if !errors.Is(err, core.ErrStreamMisuse) {
				t.Errorf("got %v, want a refusal", err)
			}
		}
		return errors.Join(own.Free(ctx), b.ReapPending(ctx), b.increment(x, w))
	})
	must(t, err)
	must(t, g.Launch(ctx, b.Runtime, x))
	if got := b.read(y, w)[0]; got != 1 {
		t.Errorf("the graph made %d of 0", got)
	}
	must(t, errors.Join(w.Free(ctx), g.Close()))
}

// Another library captures in CUDA's default mode, in which an event query
// anywhere in the process would break its capture.
func TestACaptureOfSomebodyElsesSurvivesTheRuntime(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	x, y := b.lease("x"), b.lease("y")
	handle, err := b.hw.StreamCreate()
	must(t, err)
	adopted, err := b.Streams().Adopt(handle, "somebody else's")
	must(t, err)
	w, freed := b.alloc(x, 1<<12, "captured"), b.alloc(adopted, 1<<12, "freed in the capture")
	must(t, b.doWrite(x, w, 0))
	must(t, b.Streams().Synchronize(ctx, x.ID()))
	must(t, b.doWrite(adopted, freed, 1))

	end := b.captureGlobally(handle)
	must(t, b.copyAdd.Enqueue(handle, grid(w.Len()), w.Arg(), w.Arg(), driver.U64(uint64(w.Len())), driver.U64(1)))
	must(t, freed.Free(ctx))
	for range scaled(200, 20) {
		churn := b.alloc(x, 1<<16, "churn")
		must(t, b.doWrite(y, churn, 2))
		must(t, churn.Free(ctx))
		must(t, b.ReapPending(ctx))
	}
	must(t, errors.Join(b.Streams().Synchronize(ctx, x.ID()), b.Streams().Synchronize(ctx, y.ID())))
	expect.Error(t, b.doWrite(adopted, w, 3), core.ErrStreamMisuse, "a launch on the capturing stream")
	end()

	must(t, b.Drain(ctx))
	if got := b.read(x, w)[0]; got != 0 {
		t.Errorf("what was captured has run: %d", got)
	}
	must(t, w.Free(ctx))
	must(t, b.Drain(ctx))
	must(t, adopted.Release())
	must(t, b.hw.StreamDestroy(handle))
}

// captureGlobally begins a capture on a thread of its own, as another library
// does, and returns what ends it and fails the test if it was broken. On the
// simulated device, which has no modes, it is a capture like any other.
func (b *bench) captureGlobally(s driver.Stream) (end func()) {
	b.Helper()
	if b.hw.sim != nil {
		must(b, b.hw.StreamBeginCapture(s))
		return func() {
			g, err := b.hw.StreamEndCapture(s)
			must(b, err)
			must(b, b.hw.GraphDestroy(g))
		}
	}
	lib, err := libcuda.Load()
	must(b, err)
	handle, err := dynlib.Open(lib.Path())
	must(b, err)
	out := new(uint64)
	call := func(function string, args ...uintptr) {
		symbol := dynlib.Symbol(handle, function)
		if symbol == 0 {
			b.Errorf("the driver has no function %s", function)
			return
		}
		if code, _, _ := purego.SyscallN(symbol, args...); uint32(code) != 0 {
			b.Errorf("%s: code %d", function, uint32(code))
		}
	}
	result := uintptr(unsafe.Pointer(out))
	begun, ending, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // such a capture ends on the thread that it began on
		call("cuDevicePrimaryCtxRetain", result, uintptr(b.hw.Ordinal()))
		call("cuCtxPushCurrent_v2", uintptr(*out))
		call("cuStreamBeginCapture_v2", uintptr(s), 0)
		close(begun)
		<-ending
		*out = 0
		call("cuStreamEndCapture", uintptr(s), result)
		if *out != 0 {
			call("cuGraphDestroy", uintptr(*out))
		}
		call("cuDevicePrimaryCtxRelease_v2", uintptr(b.hw.Ordinal()))
	}()
	<-begun
	return func() {
		close(ending)
		<-ended
		runtime.KeepAlive(out)
	}
}
