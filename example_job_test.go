package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// One request: a kernel over two vectors. On a GPU the first argument of Load
// after the name is the kernel's PTX; examples/hello has both.
func ExampleRuntime_Do() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim})
	defer rt.Close(ctx)
	module, _ := rt.Load("example.add", nil, addTwin)
	add, _ := module.Kernel("add") // its arguments are to, from, n and v

	var sums []uint32
	err := rt.Do(ctx, "sums", func(j *fencepost.Job) error {
		from, err := fencepost.Upload(j, []uint32{1, 2, 3})
		if err != nil {
			return err
		}
		to, err := fencepost.Alloc[uint32](j, from.Len())
		if err != nil {
			return err
		}
		n := from.Len()
		if err := j.Launch(add, cuda.Blocks1D(n, 256), fencepost.Writes(to), fencepost.Reads(from), fencepost.Value(uint32(n)), fencepost.Value(uint32(100))); err != nil {
			return err
		}
		sums, err = fencepost.Download(j, to)
		return err
	})
	fmt.Println(sums, err, rt.Stats().Live.Blocks, "blocks live")
	// Output:
	// [101 102 103] <nil> 0 blocks live
}

func ExampleUpload() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim})
	defer rt.Close(ctx)
	keys := []uint32{3, 1, 2}
	err := rt.Do(ctx, "keys", func(j *fencepost.Job) error {
		onDevice, err := fencepost.Upload(j, keys)
		if err == nil {
			fmt.Println(onDevice.Len(), "values,", onDevice.Bytes(), "bytes, tagged", onDevice.Tag())
		}
		return err
	})
	fmt.Println(err) // nil: the keys may be changed now
	// Output:
	// 3 values, 12 bytes, tagged keys
	// <nil>
}

func ExampleDownload() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim})
	defer rt.Close(ctx)
	err := rt.Do(ctx, "ones", func(j *fencepost.Job) error {
		ones, err := fencepost.Alloc[uint16](j, 3)
		if err != nil {
			return err
		}
		if err := cuda.Memset(ctx, ones, j.Stream().ID(), 1); err != nil {
			return err
		}
		host, err := fencepost.Download(j, ones) // waits for the device
		fmt.Println(host)
		return err
	})
	fmt.Println(err)
	// Output:
	// [257 257 257]
	// <nil>
}

func ExampleAdmit() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, Budget: 1 << 20, Guard: "off"})
	defer rt.Close(ctx)
	sort := func(rows int) (reserved uint64) {
		err := rt.Do(ctx, "sort", func(j *fencepost.Job) error {
			reserved = j.Account().Reserved
			_, err := fencepost.Alloc[uint64](j, rows)
			return err
		}, fencepost.Admit(), fencepost.Shape("rows", rows))
		if err != nil {
			fmt.Println(err)
		}
		return reserved
	}
	fmt.Println("the first is reserved an eighth of the budget:", sort(1000) == 1<<20/8)
	for rows := range 100 {
		sort(100 * (rows + 1))
	}
	needs, reserved := uint64(8*5050), sort(5050)
	fmt.Println("later, that is enough:", reserved >= needs, "and not much more:", reserved < needs+needs/10)
	// Output:
	// the first is reserved an eighth of the budget: true
	// later, that is enough: true and not much more: true
}

func ExampleShape() {
	ctx := context.Background()
	learned := new(admit.Model)
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, Guard: "off", Learned: learned})
	defer rt.Close(ctx)
	for n := range 30 { // measured, and not admitted
		_ = rt.Do(ctx, "join", func(j *fencepost.Job) error {
			_, err := fencepost.Alloc[byte](j, 1000*n*n+1)
			return err
		}, fencepost.Shape("left", n), fencepost.Shape("right", n))
	}
	p := learned.Predict("join", admit.ShapeOf("left", 20).And("right", 20))
	fmt.Println("known:", p.Known, "least:", p.Low > 380_000, "most:", p.Bytes < 420_000)
	// Output:
	// known: true least: true most: true
}

func ExampleReserve() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim, Budget: 1 << 20, Guard: "off"})
	defer rt.Close(ctx)
	work := func(*fencepost.Job) error { return nil }

	fmt.Println(rt.Do(ctx, "sort", work, fencepost.Reserve(1<<20, time.Second)))

	index, _ := rt.Allocate(ctx, core.Request{Bytes: 1 << 19, Tag: "index"})
	err := rt.Do(ctx, "sort", work, fencepost.Reserve(1<<20, 10*time.Millisecond))
	if refused, ok := errors.AsType[*core.OutOfBudgetError](err); ok {
		fmt.Println("wanted", refused.Requested, "of", refused.Limit, "and", refused.Holders[0].Tag, "holds", refused.Holders[0].Bytes)
	}
	_, _ = rt.Deallocate(ctx, index.ID)
	// Output:
	// <nil>
	// wanted 1048576 of 1048576 and index holds 524288
}

// What one job needs at most, and what the runtime needs while it runs. What was live before is
// in the peak of the stretch and not in that of the job.
func ExampleRuntime_Measure() {
	ctx := context.Background()
	rt, _ := fencepost.Open(ctx, fencepost.Config{Device: fencepost.Sim})
	defer rt.Close(ctx)
	weights, _ := rt.Allocate(ctx, core.Request{Bytes: 1000, Tag: "weights"})

	stretch := rt.Measure(ctx)
	err := rt.Do(ctx, "batch", func(j *fencepost.Job) error {
		input, err := fencepost.Alloc[byte](j, 300)
		if err != nil {
			return err
		}
		if err := input.Free(ctx); err != nil {
			return err
		}
		if _, err := fencepost.Alloc[byte](j, 200); err != nil {
			return err
		}
		fmt.Println("the job:", j.Account().Requested)
		return nil
	})
	peak := stretch.Stop()
	_, _ = rt.Deallocate(ctx, weights.ID)
	fmt.Println("the runtime:", peak.Requested, "of which weights", peak.Tags["weights"].Requested, "and batch", peak.Tags["batch"].Requested, err)
	// Output:
	// the job: 300
	// the runtime: 1300 of which weights 1000 and batch 300 <nil>
}
