// Command hello serves two requests with a kernel of its own and prints a span.
// With -bug 1 the kernel goes one value too far, and the guard says who did it.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"slices"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

//go:embed add.ptx
var ptx []byte // add_each(values, v, n), for a GPU

// twin is the same for the simulated device: what it touches, and what it does.
var twin = sim.Kernel{Name: "add_each", Declare: func(a sim.Args) []sim.Range { return []sim.Range{sim.ReadWrites(a.Ptr(0), 4*uint64(a.U32(2)))} },
	Run: func(x *sim.Exec) {
		values := sim.ReadWriteSlice[uint32](x, x.Args().Ptr(0), int(x.Args().U32(2)))
		for i := range values {
			values[i] += x.Args().U32(1)
		}
	}}

func main() {
	beyond := flag.Int("bug", 0, "how many values the kernel goes too far")
	flag.Parse()
	ctx, spans := context.Background(), tracetest.NewSpanRecorder()
	rt := must(fencepost.Open(ctx, fencepost.Config{Guard: "hunt:bisect", TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(spans))}))
	add := must(must(rt.Load("hello", ptx, twin)).Kernel("add_each"))
	for _, v := range []uint32{10, 100} { // two requests
		must(rt, rt.Do(ctx, "hello", func(j *fencepost.Job) error {
			values, err := fencepost.Upload(j, []uint32{1, 2, 3})
			if err != nil {
				return err
			}
			n := values.Len() + *beyond
			if err := j.Launch(add, cuda.Blocks1D(n, 256), fencepost.ReadWrites(values), fencepost.Value(v), fencepost.Value(uint32(n))); err != nil {
				return err
			}
			sums, err := fencepost.Download(j, values)
			fmt.Println(sums)
			return err
		}))
	}
	must(rt.Close(ctx))
	i := slices.IndexFunc(spans.Ended(), func(s trace.ReadOnlySpan) bool { return s.Name() == "gpumem.launch add_each" })
	fmt.Println("span", spans.Ended()[i].Name(), spans.Ended()[i].Attributes())
	for _, f := range rt.Findings().Recent() {
		fmt.Println("found", f.Kind, "in", f.Victim.Tag, "by", f.Suspects)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
