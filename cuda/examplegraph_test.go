package cuda_test

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

func ExampleLease_Capture() {
	e := openExample()
	defer e.close()
	decode, other := e.lease("decode"), e.lease("other")
	cache, err := cuda.Alloc[int32](ctx, e.memory, 4, cuda.AllocOptions{Stream: other.ID(), Tag: "kv.cache"})
	check(err)

	// Captured once: the work is enqueued raw, its blocks are declared.
	uses := []core.Use{cache.Use(core.Write)}
	step, err := decode.Capture(ctx, "decode.step", uses, func(s driver.Stream) error {
		// The runtime keeps out of the graph.
		_, err := cuda.Alloc[byte](ctx, e.memory, 1, cuda.AllocOptions{Stream: decode.ID()})
		fmt.Println("an allocation on the capturing stream is refused:", errors.Is(err, core.ErrStreamMisuse))
		return e.device.MemsetAsync(cache.Ptr(), 7, cache.Bytes(), s)
	})
	check(err)

	// Launched on any stream, as often as is wanted, and fenced each time.
	for range 3 {
		check(cuda.Memset(ctx, cache, other.ID(), 0), step.Launch(ctx, e.runtime, decode))
	}
	values, err := cuda.Download(ctx, cache, other.ID())
	check(err)
	fmt.Printf("%#x\n", values)

	check(cache.Free(ctx))
	err = step.Launch(ctx, e.runtime, decode)
	fmt.Println("a launch after the free is refused:", errors.Is(err, core.ErrUseAfterFree))
	check(step.Close(), decode.Release(), other.Release())
	// Output:
	// an allocation on the capturing stream is refused: true
	// [0x7070707 0x7070707 0x7070707 0x7070707]
	// a launch after the free is refused: true
}
