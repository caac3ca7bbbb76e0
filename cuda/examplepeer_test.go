package cuda_test

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

func ExampleCopyFromPeer() {
	near, far := openExample(), openExampleOn(1)
	defer near.close()
	defer far.close()
	here, there := near.lease("query"), far.lease("query")

	found, err := cuda.Alloc[int32](ctx, near.memory, 3, cuda.AllocOptions{Stream: here.ID(), Tag: "matches"})
	check(err)
	all, err := cuda.Alloc[int32](ctx, far.memory, 3, cuda.AllocOptions{Stream: there.ID(), Tag: "matches"})
	check(err)
	check(cuda.CopyToDevice(ctx, found, here.ID(), []int32{3, 1, 4}))
	check(cuda.CopyFromPeer(ctx, all, there.ID(), found, here.ID())) // waits for the line above
	check(found.Free(ctx))                                           // waits for the copy
	values, err := cuda.Download(ctx, all, there.ID())
	check(err)
	fmt.Println(values)

	check(all.Free(ctx), here.Release(), there.Release())
	// Output: [3 1 4]
}

func ExampleAllocHost() {
	e := openExample()
	defer e.close()
	stream := e.lease("upload")

	batch, err := cuda.AllocHost[float32](e.memory, 4)
	check(err)
	copy(batch.Values(), []float32{1, 2, 3, 4})
	column, err := cuda.Alloc[float32](ctx, e.memory, 4, cuda.AllocOptions{Stream: stream.ID()})
	check(err)
	check(cuda.CopyToDevice(ctx, column, stream.ID(), batch.Values())) // no staging, no wait
	check(batch.Free(ctx))                                             // waits for the copy
	fmt.Println("freed twice:", errors.Is(batch.Free(ctx), core.ErrUseAfterFree))

	values, err := cuda.Download(ctx, column, stream.ID())
	check(err)
	fmt.Println(values)
	check(column.Free(ctx), stream.Release())
	// Output:
	// freed twice: true
	// [1 2 3 4]
}

func ExampleAsyncResource_TrimPool() {
	e := openExample()
	defer e.close()
	peak, err := e.async.Allocate(ctx, core.Request{Bytes: 32 << 20})
	check(err)
	_, err = e.async.Deallocate(ctx, peak.ID)
	check(err, e.async.Drain(ctx))

	before, err := e.async.PoolStats()
	check(err, e.async.TrimPool(2<<20))
	after, err := e.async.PoolStats()
	check(err)
	fmt.Println("held:", before.Reserved>>20, "then:", after.Reserved>>20, "at most:", after.ReservedHigh>>20)
	// Output: held: 32 then: 2 at most: 32
}

// A service that wants the same addresses in every run leaves out what depends
// on timing.
func ExampleAsyncConfig() {
	device, err := sim.Open(sim.Config{})
	check(err)
	streams, err := cuda.NewStreamPool(device, cuda.StreamPoolConfig{})
	check(err)
	cfg := cuda.AsyncConfig{DisableReuse: driver.ReuseOpportunistic | driver.ReuseInternalDependencies}
	async, err := cuda.NewAsyncResource(device, streams, cfg)
	check(err)
	fmt.Println("disabled:", cfg.DisableReuse)
	check(async.Close(ctx), streams.Close(ctx), device.Close())
	// Output: disabled: opportunistic|internal-dependencies
}
