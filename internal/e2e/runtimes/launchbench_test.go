package runtimes_test

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A launch on the simulated device, which compares what it touches with what it declares.
func BenchmarkSimulatedLaunch(b *testing.B) {
	for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
		b.Run(string(backend), func(b *testing.B) {
			rt := must.Get(fencepost.Open(b.Context(), fencepost.Config{Resource: backend, Device: fencepost.Sim}))(b)
			defer func() { _, _ = rt.Close(context.Background()) }()
			kernel := must.Get(must.Get(rt.Load("bench", nil, sim.Kernel{
				Name:    "touch",
				Declare: func(a sim.Args) []sim.Range { return []sim.Range{sim.ReadWrites(a.Ptr(0), 256)} },
				Run:     func(x *sim.Exec) { x.ReadWrite(x.Args().Ptr(0), 256)[0]++ },
			}))(b).Kernel("touch"))(b)
			on := must.Get(rt.Streams().Acquire(b.Context(), "bench"))(b)
			s := must.Get(cuda.Alloc[byte](b.Context(), rt.Memory(), 256, cuda.AllocOptions{Stream: on.ID(), Tag: "bench"}))(b)
			must.Do(b, cuda.Memset(b.Context(), s, on.ID(), 1))
			uses, args := []core.Use{s.Use(core.ReadWrite)}, []driver.Arg{s.Arg()}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				must.Do(b, kernel.Launch(b.Context(), rt, on, cuda.Blocks1D(1, 1), uses, args...))
				if i%64 == 0 {
					must.Do(b, rt.Streams().Synchronize(b.Context(), on.ID()))
				}
			}
			must.Do(b, s.Free(b.Context()), on.Release())
		})
	}
}
