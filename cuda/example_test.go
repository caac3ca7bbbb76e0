package cuda_test

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// example is a stack on a simulated device, for the examples.
type example struct {
	device  *sim.Device
	streams *cuda.StreamPool
	async   *cuda.AsyncResource
	runtime *core.Runtime
	memory  *cuda.MemoryManager
}

func openExample() *example { return openExampleOn(0) }

func openExampleOn(ordinal int) *example {
	e := new(example)
	var errs [5]error
	e.device, errs[0] = sim.Open(sim.Config{Ordinal: ordinal, Bytes: 64 << 20})
	e.streams, errs[1] = cuda.NewStreamPool(e.device, cuda.StreamPoolConfig{Max: 2})
	e.async, errs[2] = cuda.NewAsyncResource(e.device, e.streams, cuda.AsyncConfig{})
	e.runtime, errs[3] = core.NewRuntime(e.async, nil)
	e.memory, errs[4] = cuda.NewMemoryManager(e.device, e.streams, e.runtime)
	if err := errors.Join(errs[:]...); err != nil {
		panic(err)
	}
	return e
}

func (e *example) close() {
	check(e.async.Close(ctx), e.streams.Close(ctx), e.device.Close())
}

// lease acquires a stream.
func (e *example) lease(tag core.Tag) *cuda.Lease {
	l, err := e.streams.Acquire(ctx, tag)
	check(err)
	return l
}

// check stops an example that went wrong.
func check(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}

func ExampleStreamPool_TryAcquire() {
	e := openExample()
	defer e.close()

	query, index := e.lease("query"), e.lease("index")
	_, err := e.streams.TryAcquire(ctx, "report")
	fmt.Println("third lease of two refused:", errors.Is(err, cuda.ErrNoStream))

	check(query.Release())
	fmt.Println("released twice:", errors.Is(query.Release(), core.ErrStreamMisuse))
	check(index.Release())
	// Output:
	// third lease of two refused: true
	// released twice: true
}

func ExampleNewAsyncResource() {
	device, err := sim.Open(sim.Config{})
	check(err)
	streams, err := cuda.NewStreamPool(device, cuda.StreamPoolConfig{})
	check(err)
	async, err := cuda.NewAsyncResource(device, streams, cuda.AsyncConfig{})
	check(err)

	block, err := async.Allocate(ctx, core.Request{Bytes: 1 << 20, Tag: "embeddings"})
	check(err)
	fmt.Println(async, block.State, block.Bytes)
	_, err = async.Deallocate(ctx, block.ID)
	check(err, async.Drain(ctx))
	fmt.Println(async.State(block.ID))

	check(async.Close(ctx), streams.Close(ctx), device.Close())
	// Output:
	// async(sim:0) live 1048576
	// freed
}

func ExampleNewPoolResource() {
	device, err := sim.Open(sim.Config{})
	check(err)
	streams, err := cuda.NewStreamPool(device, cuda.StreamPoolConfig{})
	check(err)
	pool, err := cuda.NewPoolResource(device, streams, cuda.PoolConfig{Limit: 64 << 20, ReapInterval: -1}) // without a background
	check(err)

	for range 3 {
		block, err := pool.Allocate(ctx, core.Request{Bytes: 1 << 20, Tag: "embeddings"})
		check(err)
		_, err = pool.Deallocate(ctx, block.ID)
		check(err)
	}
	st := pool.Stats()
	fmt.Println("grew", st.OwnPool.Growths.Count, "time and holds", st.Reserved>>20, "MiB,", st.Cached>>20, "of them in no block")

	check(pool.Close(ctx), streams.Close(ctx), device.Close())
	// Output: grew 1 time and holds 16 MiB, 16 of them in no block
}

func ExampleAlloc() {
	e := openExample()
	defer e.close()
	writer, reader := e.lease("writer"), e.lease("reader")

	column, err := cuda.Alloc[float32](ctx, e.memory, 3, cuda.AllocOptions{Stream: writer.ID(), Tag: "prices"})
	check(err)
	check(cuda.CopyToDevice(ctx, column, writer.ID(), []float32{1.5, 2.5, 3.5}))
	values, err := cuda.Download(ctx, column, reader.ID()) // on another stream: fenced
	check(err)
	fmt.Println(values)

	check(column.Free(ctx), writer.Release(), reader.Release())
	// Output: [1.5 2.5 3.5]
}

func ExampleKernel_Launch() {
	e := openExample()
	defer e.close()
	// On a GPU the image holds PTX; here a Go function stands in for it.
	check(e.device.RegisterModule("example", sim.Kernel{
		Name:    "double",
		Declare: func(a sim.Args) []sim.Range { return []sim.Range{sim.ReadWrites(a.Ptr(0), 4*uint64(a.U32(1)))} },
		Run: func(x *sim.Exec) {
			values := sim.ReadWriteSlice[int32](x, x.Args().Ptr(0), int(x.Args().U32(1)))
			for i := range values {
				values[i] *= 2
			}
		},
	}))
	module, err := cuda.LoadModule(e.device, driver.Image{Name: "example"})
	check(err)
	double, err := module.Kernel("double")
	check(err)
	home, away := e.lease("home"), e.lease("away")

	values, err := cuda.Alloc[int32](ctx, e.memory, 3, cuda.AllocOptions{Stream: home.ID()})
	check(err)
	check(cuda.CopyToDevice(ctx, values, home.ID(), []int32{1, 2, 3}))
	check(double.Launch(ctx, e.runtime, away, cuda.Blocks1D(values.Len(), 256),
		[]core.Use{values.Use(core.ReadWrite)}, values.Arg(), driver.U32(3)))
	result, err := cuda.Download(ctx, values, home.ID())
	check(err)
	fmt.Println(result, "waits queued:", e.runtime.Stats().WaitsQueued)

	check(values.Free(ctx), home.Release(), away.Release(), module.Unload())
	// Output: [2 4 6] waits queued: 2
}

func ExampleStreamPool_Adopt() {
	e := openExample()
	defer e.close()
	theirs, err := e.device.StreamCreate() // another library's stream
	check(err)

	lease, err := e.streams.Adopt(theirs, "framework")
	check(err)
	block, err := e.runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: lease.ID()})
	check(err)
	check(lease.Release(), e.device.StreamDestroy(theirs))
	// The block outlives the stream: it is freed on one of the runtime's.
	_, err = e.runtime.Deallocate(ctx, block.ID)
	check(err, e.runtime.Drain(ctx))
	fmt.Println(e.runtime.State(block.ID))
	// Output: freed
}

func ExampleNewMemoryManager() {
	e := openExample()
	defer e.close()
	tracked, err := cuda.NewMemoryManager(e.device, e.streams, e.runtime)
	check(err)
	around := cuda.NewUntrackedManager(e.device, e.streams, 1<<20)

	for _, m := range []*cuda.MemoryManager{tracked, around} {
		slice, err := cuda.Alloc[byte](ctx, m, 100, cuda.AllocOptions{})
		check(err)
		rec := core.NewStrictRecorder(core.DefaultStream)
		fmt.Println(rec.Read(slice) == nil)
		check(rec.Abort(ctx, e.runtime), slice.Free(ctx))
	}
	// Output:
	// true
	// false
}

func ExampleColumn() {
	e := openExample()
	defer e.close()
	imported := cuda.ExternalColumn(cuda.External{Ptr: 0x7f0000000000, Bytes: 400, Release: func() { fmt.Println("the producer has it back") }})
	fmt.Println("external:", imported.IsExternal())

	rec := core.NewPermissiveRecorder(core.DefaultStream)
	check(rec.Read(imported)) // skipped: its user synchronises with the producer
	fmt.Println(rec.RecordedCount(), "uses to fence")
	imported.Release()
	imported.Release()
	// Output:
	// external: true
	// 0 uses to fence
	// the producer has it back
}

func ExampleNewDirectResource() {
	device, err := sim.Open(sim.Config{})
	check(err)
	direct := cuda.NewDirectResource(device)
	block, err := direct.Allocate(ctx, core.Request{Bytes: 100})
	check(err)
	_, err = direct.PrepareUse(ctx, core.UseRequest{Uses: []core.Use{{Block: block.ID, Access: core.Read}}})
	fmt.Println("fences uses:", !errors.Is(err, errors.ErrUnsupported))
	_, err = direct.Deallocate(ctx, block.ID)
	check(err, device.Close())
	fmt.Println(direct, direct.State(block.ID))
	// Output:
	// fences uses: false
	// direct(sim:0) freed
}
