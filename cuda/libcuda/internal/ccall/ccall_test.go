//go:build linux && (amd64 || arm64)

package ccall_test

import (
	"testing"

	"github.com/ebitengine/purego"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda/internal/ccall"
)

// way is one way into C. start returns a function that makes the same call
// each time, as a caller with a pooled frame does.
type way struct {
	name  string
	start func(fn uintptr, args [2]uintptr) func() uintptr
}

// ways are those that this build has; the first is the baseline.
var ways = []way{{"bare", throughPurego}, {"ccall", throughFrame}}

// throughPurego is the general way, with a reused argument array.
func throughPurego(fn uintptr, args [2]uintptr) func() uintptr {
	array := args[:]
	return func() uintptr {
		r, _, _ := purego.SyscallN(fn, array...)
		return r
	}
}

// throughFrame is the way of package libcuda.
func throughFrame(fn uintptr, args [2]uintptr) func() uintptr {
	f := &ccall.Frame{Fn: fn}
	copy(f.Args[:], args[:])
	return func() uintptr {
		ccall.Call(f)
		return f.Ret
	}
}

// symbol returns the address of a function of a library.
func symbol(t testing.TB, library, name string) uintptr {
	t.Helper()
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	fn, err := purego.Dlsym(handle, name)
	if err != nil {
		t.Fatal(err)
	}
	return fn
}

const libc = "libc.so.6"

func TestEveryWayReturnsTheSame(t *testing.T) {
	labs := symbol(t, libc, "labs")
	for _, w := range ways {
		call := w.start(labs, [2]uintptr{^uintptr(41), 0})
		if got := call(); got != 42 {
			t.Errorf("%s: labs(-42) is %d", w.name, got)
		}
		if allocs := testing.AllocsPerRun(100, func() { call() }); allocs != 0 {
			t.Errorf("%s: %v allocations a call", w.name, allocs)
		}
	}
}

// BenchmarkTrivial calls a C function of one instruction.
func BenchmarkTrivial(b *testing.B) {
	run(b, symbol(b, libc, "labs"), [2]uintptr{42, 0})
}

func run(b *testing.B, fn uintptr, args [2]uintptr) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			call := w.start(fn, args)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

// gpu is a device with a stream and a recorded event.
type gpu struct {
	library *libcuda.Library
	device  *libcuda.Device
	stream  driver.Stream
	event   driver.Event
}

func openGPU(b *testing.B) *gpu {
	library, err := libcuda.Load()
	if err != nil {
		b.Skip(err)
	}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	g := &gpu{library: library}
	g.device, err = library.Open(0)
	must(err)
	b.Cleanup(func() { must(g.device.Close()) })
	g.stream, err = g.device.StreamCreate()
	must(err)
	g.event, err = g.device.EventCreate()
	must(err)
	must(g.device.EventRecord(g.event, g.stream))
	must(g.device.Synchronize())
	return g
}

// BenchmarkEventQuery asks a CUDA driver for an event that is done. The device
// adds its pooled frame and what it does about errors.
func BenchmarkEventQuery(b *testing.B) {
	g := openGPU(b)
	run(b, symbol(b, g.library.Path(), "cuEventQuery"), [2]uintptr{uintptr(g.event), 0})
	b.Run("device", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = g.device.EventQuery(g.event)
		}
	})
}

// BenchmarkEventRecord records an event on an idle stream.
func BenchmarkEventRecord(b *testing.B) {
	g := openGPU(b)
	run(b, symbol(b, g.library.Path(), "cuEventRecord"), [2]uintptr{uintptr(g.event), uintptr(g.stream)})
	b.Run("device", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = g.device.EventRecord(g.event, g.stream)
		}
	})
	b.Run("default-stream", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = g.device.EventRecord(g.event, 0)
		}
	})
}

// A chain is called in order on one thread, as far as what must succeed does.
func TestAChainIsCalledInOneCrossing(t *testing.T) {
	gettid, labs := symbol(t, libc, "gettid"), symbol(t, libc, "labs")
	last := &ccall.Frame{Fn: gettid}
	middle := &ccall.Frame{Fn: labs, Args: [11]uintptr{^uintptr(41)}, Next: last}
	first := &ccall.Frame{Fn: gettid, Next: middle}
	ccall.Call(first)
	if first.Ret == 0 || first.Ret != last.Ret || middle.Ret != 42 {
		t.Errorf("the chain returned %d, %d, %d", first.Ret, middle.Ret, last.Ret)
	}
	middle.Must, last.Ret = true, 7
	if ccall.Call(first); middle.Ret != 42 || last.Ret != 7 {
		t.Errorf("what must succeed returned %d, what is behind it %d", middle.Ret, last.Ret)
	}
	middle.Args[0] = 1 << 32 // no code of an error: those have 32 bits
	if ccall.Call(first); last.Ret != first.Ret {
		t.Errorf("what is behind a success returned %d", last.Ret)
	}
	if allocs := testing.AllocsPerRun(100, func() { ccall.Call(first) }); allocs != 0 {
		t.Errorf("%v allocations a chain", allocs)
	}
}
