package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/dynlib"
)

// gpu is a real device with what the C loops need of it.
type gpu struct {
	*libcuda.Device
	loops   map[string]uintptr
	pool    driver.Pool
	streams [2]driver.Stream
	events  [3]driver.Event
}

func openGPU(b *testing.B) *gpu {
	library, err := libcuda.Load()
	if err != nil {
		b.Skip(err)
	}
	g := &gpu{loops: map[string]uintptr{}}
	if g.Device, err = library.Open(0); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { check(b, g.Close()) })
	g.pool = made(b, func() (driver.Pool, error) {
		return g.PoolCreate(driver.PoolConfig{ReleaseThreshold: math.MaxUint64})
	})
	for i := range g.streams {
		g.streams[i] = made(b, g.StreamCreate)
	}
	for i := range g.events {
		g.events[i] = made(b, g.EventCreate)
	}
	g.loadLoops(b, library.Path())
	return g
}

// check is called in what is measured, so it does not call b.Helper, which
// walks the stack.
func check(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

func made[T any](b *testing.B, construct func() (T, error)) T {
	b.Helper()
	v, err := construct()
	check(b, err)
	return v
}

// loadLoops compiles testdata/cloop.c and loads it.
func (g *gpu) loadLoops(b *testing.B, driverPath string) {
	b.Helper()
	library := filepath.Join(b.TempDir(), "cloop.so")
	if out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", library, "testdata/cloop.c", "-ldl").CombinedOutput(); err != nil {
		b.Skipf("no C compiler for the loops to compare with: %v\n%s", err, out)
	}
	handle := made(b, func() (uintptr, error) { return dynlib.Open(library) })
	for _, name := range []string{"cloop_open", "cloop_pairs", "cloop_fences"} {
		if g.loops[name] = dynlib.Symbol(handle, name); g.loops[name] == 0 {
			b.Fatalf("the loops have no function %s", name)
		}
	}
	path := append([]byte(driverPath), 0)
	if rc, _, _ := purego.SyscallN(g.loops["cloop_open"], uintptr(unsafe.Pointer(&path[0]))); rc != 0 {
		b.Fatalf("the loops could not open %s", driverPath)
	}
}

// loop runs a C loop for b.N rounds and reports what one took.
func (g *gpu) loop(b *testing.B, name string, args ...uintptr) {
	rounds := append([]uintptr{uintptr(b.N)}, args...)
	ns, _, _ := purego.SyscallN(g.loops[name], rounds...)
	if int64(ns) < 0 {
		b.Fatalf("%s: CUDA error %d", name, -int64(ns))
	}
	b.ReportMetric(float64(ns)/float64(b.N), "ns/op")
}

// BenchmarkGPUPair is an allocation and its free on a GPU: the same driver
// calls in a C loop, through the bare backend, and through runtimes of services.
// "ready" is the loop with an event behind every allocation, "driver" the two
// calls through package libcuda alone.
func BenchmarkGPUPair(b *testing.B) {
	g := openGPU(b)
	for _, bytes := range []uint64{4 << 10, 1 << 20} {
		c := func(ready driver.Event) func(*testing.B) {
			return func(b *testing.B) {
				g.loop(b, "cloop_pairs", uintptr(bytes), uintptr(g.pool), uintptr(g.streams[0]), uintptr(g.events[0]), uintptr(ready))
			}
		}
		b.Run(fmt.Sprintf("bytes=%d/c", bytes), c(0))
		b.Run(fmt.Sprintf("bytes=%d/ready", bytes), c(g.events[1]))
		b.Run(fmt.Sprintf("bytes=%d/driver", bytes), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				ptr, err := g.MemAllocAsync(bytes, g.pool, g.streams[0])
				check(b, errors.Join(err, g.MemFreeAsync(ptr, g.streams[0])))
			}
		})
		for _, c := range ways {
			b.Run(fmt.Sprintf("bytes=%d/%s", bytes, c.name), func(b *testing.B) {
				s := c.open(b, g, fencepost.Async)
				stream, ctx := s.lease(b).ID(), s.ctx
				b.ReportAllocs()
				for b.Loop() {
					check(b, s.pairOf(ctx, stream, bytes))
				}
			})
		}
	}
}

// BenchmarkGPUFences is what fences launches that alternate between two
// streams and write the same blocks: one record and one wait each, in a C
// loop, and by preparing and finishing.
func BenchmarkGPUFences(b *testing.B) {
	g := openGPU(b)
	for _, n := range []int{1, 8} {
		b.Run(fmt.Sprintf("blocks=%d/c", n), func(b *testing.B) {
			g.loop(b, "cloop_fences", uintptr(g.streams[0]), uintptr(g.streams[1]), uintptr(g.events[0]), uintptr(g.events[1]))
		})
		b.Run(fmt.Sprintf("blocks=%d/driver", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				err := g.StreamWait(g.streams[i%2], g.events[(i+1)%2])
				check(b, errors.Join(err, g.EventRecord(g.events[i%2], g.streams[i%2])))
			}
		})
		for _, c := range ways {
			b.Run(fmt.Sprintf("blocks=%d/%s", n, c.name), func(b *testing.B) {
				s := c.open(b, g, fencepost.Async)
				ids := []core.StreamID{s.lease(b).ID(), s.lease(b).ID()}
				uses := blocks(b, s, ids[0], n)
				ctx, nothing := s.ctx, func(context.Context) error { return nil }
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					check(b, s.runtime.Launch(ctx, ids[i%2], uses, nothing))
				}
			})
		}
	}
}
