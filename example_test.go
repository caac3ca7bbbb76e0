package fencepost_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

func ExampleOpen() {
	ctx := context.Background()
	rt, err := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, Budget: 1 << 30})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rt)
	fmt.Println("budget:", rt.Stats().Limit, "guard:", rt.Guard().Mode(), "healthy:", rt.Health().OK)
	_, err = rt.Close(ctx)
	fmt.Println(err)
	// Output:
	// telemetry(debugguard(budget(logging(pool(sim:0)))))
	// budget: 1073741824 guard: sample healthy: true
	// <nil>
}

// Typed memory, filled by one stream and read by another, fenced by what the
// launch declares.
func Example() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{})
	defer rt.Close(ctx)
	x, _ := rt.Streams().Acquire(ctx, "producer")
	y, _ := rt.Streams().Acquire(ctx, "consumer")
	keys, _ := cuda.Alloc[uint32](ctx, rt.Memory(), 4, cuda.AllocOptions{Stream: x.ID(), Tag: "sort.keys"})

	_ = rt.Launch(ctx, x.ID(), []core.Use{keys.Use(core.Write)}, func(context.Context) error {
		return rt.Driver().MemsetAsync(keys.Ptr(), 1, keys.Bytes(), x.Handle())
	})
	host := make([]uint32, keys.Len())
	_ = cuda.CopyToHost(ctx, host, keys, y.ID()) // waits for the write on x: declared, so fenced
	_ = keys.Free(ctx)                           // after the copy on y, for which x does not wait
	_ = rt.Streams().Synchronize(ctx, y.ID())
	fmt.Printf("%#x, %d waits queued\n", host, rt.Stats().WaitsQueued)
	_ = errors.Join(x.Release(), y.Release())
	// Output:
	// [0x1010101 0x1010101 0x1010101 0x1010101], 1 waits queued
}

func ExampleRuntime_launch() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim})
	stream, _ := rt.Streams().Acquire(ctx, "request")
	in, _ := cuda.Alloc[float32](ctx, rt.Memory(), 256, cuda.AllocOptions{Stream: stream.ID(), Tag: "input"})
	out, _ := cuda.Alloc[float32](ctx, rt.Memory(), 256, cuda.AllocOptions{Stream: stream.ID(), Tag: "output"})

	uses := []core.Use{in.Use(core.Read), out.Use(core.Write)}
	err := rt.LaunchNamed(ctx, "copy", stream.ID(), uses, func(context.Context) error {
		return rt.Driver().CopyOnDeviceAsync(out.Ptr(), in.Ptr(), in.Bytes(), stream.Handle())
	})
	fmt.Println(err, rt.Stats().Launches)

	err = rt.Launch(ctx, stream.ID(), uses, func(context.Context) error {
		return core.NotEnqueued(errors.New("no such kernel"))
	})
	fmt.Println(err, rt.Stats().Launches, rt.Stats().Aborts)

	fmt.Println(errors.Join(in.Free(ctx), out.Free(ctx), stream.Release()))
	_, err = rt.Close(ctx)
	fmt.Println(err)
	// Output:
	// <nil> 1
	// no such kernel 1 1
	// <nil>
	// <nil>
}

func ExampleDevice() {
	ctx := context.Background()
	rt, err := fencepost.Device(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := fencepost.Device(0)
	fmt.Println(rt == again, err)
	_, err = rt.Close(ctx)
	fmt.Println(err)
	// Output:
	// true <nil>
	// <nil>
}

func ExampleRuntime_Close() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim})
	_, _ = rt.Allocate(ctx, core.Request{Bytes: 1 << 20, Tag: "index.build"})

	left, err := rt.Close(ctx)
	fmt.Println(left.LeakedBytes, "bytes leaked,", err)
	for _, leak := range left.Leaks {
		fmt.Println(leak.Block.Tag, leak.Block.Requested, "stack kept:", len(leak.AllocStack) > 0)
	}
	fmt.Println(rt.Findings().Counts())
	// Output:
	// 1048576 bytes leaked, <nil>
	// index.build 1048576 stack kept: true
	// map[leak:1]
}

func ExampleRuntime_reserve() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, Budget: 1 << 20, Guard: "off"})
	claim, err := rt.Reserve(ctx, 1<<20, "index.build") // the whole request, before it starts
	fmt.Println(claim.Bytes, err)

	_, err = rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "sort"})
	fmt.Println(err)

	block, err := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "index.build", Claim: claim.ID})
	fmt.Println(block.Requested, err)

	_, err = rt.Deallocate(ctx, block.ID)
	fmt.Println(errors.Join(err, rt.ReleaseClaim(ctx, claim.ID)))
	_, err = rt.Close(ctx)
	fmt.Println(err)
	// Output:
	// 1048576 <nil>
	// out of budget: requested 4.0 KiB for "sort", remaining 0 B of 1.0 MiB (live 0 B, pending 0 B, quarantined 0 B, claimed 1.0 MiB); largest holders: index.build claimed 1.0 MiB in 1 reservation
	// 4096 <nil>
	// <nil>
	// <nil>
}

func ExampleRuntime_TrimPool() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim})
	peak, _ := rt.Allocate(ctx, core.Request{Bytes: 256 << 20, Tag: "index.build"})
	_, _ = rt.Deallocate(ctx, peak.ID)
	_ = rt.Drain(ctx)

	err := rt.TrimPool(ctx, 0) // a neighbour on the device needs the memory
	pool, _ := rt.PoolStats()
	fmt.Println(err, pool.Reserved < 16<<20, pool.ReservedHigh >= 256<<20)
	_, err = rt.Close(ctx)
	fmt.Println(err)
	// Output:
	// <nil> true true
	// <nil>
}
