package corpus

import (
	"context"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// overrun is a kernel that writes extra words behind its block.
func overrun(name string, s *Stream, b *Mem, bug bool) Job {
	extra := pick(bug, 2, 0)
	return Job{Name: name, On: s, Uses: []core.Use{b.RW()}, Kernel: testkernels.OutOfBounds, Args: []any{b.At(0), b.Words(), extra}}
}

// spatialStreams are overruns whose launch stands in another relation to the
// stream of the block.
func spatialStreams() []Case {
	return []Case{
		{Name: "overrun-on-another-stream", Class: Spatial, What: "a launch on another stream than the block's writes behind it, while the block's own stream is busy with others",
			Kinds: behind, Culprit: "refine", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b, other := w.Filled(x, "rows", words, 1), w.Filled(x, "other", words, 2)
				w.Victim(b.ID)
				w.Do(overrun("refine", y, b, bug))
				w.Read("use_other", x, other)
				w.Free(b, other)
			}},
		{Name: "overrun-in-a-crowd", Class: Spatial, What: "one of forty launches on four streams writes behind the block that all of them use",
			Kinds: behind, Culprit: "step_17", Want: onDevice, Why: hostOnly, Stack: true,
			Run: func(w *World, bug bool) {
				var streams [4]*Stream
				for i := range streams {
					streams[i] = w.Stream()
				}
				b := w.Harmed(streams[0], "rows", words, 1)
				for i := range 40 {
					w.Do(overrun(fmt.Sprintf("step_%d", i), streams[i%4], b, bug && i == 17))
				}
				w.Free(b)
			}},
		{Name: "overrun-in-a-graph", Class: Spatial, What: "a captured kernel writes behind its block whenever the graph is launched",
			Kinds: behind, Culprit: "step_graph", Want: onDevice, Why: hostOnly, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "state", words, 1)
				g, err := s.Capture(w.ctx, "step_graph", []core.Use{b.RW()}, func(h driver.Stream) error { return w.enqueue(overrun("", s, b, bug), h) })
				w.must(err)
				w.must(g.Launch(w.ctx, w.Runtime, s.Lease))
				w.must(g.Launch(w.ctx, w.Runtime, s.Lease))
				w.Sync(s)
				w.must(g.Close())
				w.Free(b)
			}},
		{Name: "overrun-on-default-stream", Class: Spatial, What: "a launch on the default stream writes behind a block of a leased one",
			Kinds: behind, Culprit: "legacy_step", Want: onDevice, Why: hostOnly, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				j := overrun("legacy_step", s, b, bug)
				w.must(w.LaunchNamed(w.ctx, j.Name, core.DefaultStream, j.Uses, func(context.Context) error { return w.enqueue(j, 0) }))
				w.Free(b)
			}},
		{Name: "overrun-on-adopted-stream", Class: Spatial, What: "a block of an adopted stream is overrun there and freed after the stream was given up",
			Kinds: behind, Culprit: "foreign_step", Want: onDevice, Why: hostOnly, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Adopt()
				b := w.Harmed(s, "rows", words, 1)
				w.Do(overrun("foreign_step", s, b, bug))
				w.must(s.Release())
				w.Free(b)
			}},
		{Name: "overrun-by-kernel-launch", Class: Spatial, What: "a kernel launched by Kernel.Launch with a typed slice writes behind it",
			Kinds: behind, Culprit: testkernels.OutOfBounds, Want: onDevice, Why: hostOnly, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				v := w.Slice(s, "values", words)
				w.Victim(v.BlockID())
				w.FillSlice("fill", s, v, 1)
				extra := pick(bug, 3, uint64(0))
				w.must(w.kernels[testkernels.OutOfBounds].Launch(w.ctx, w.Runtime, s.Lease, cuda.Blocks1D(words, 256),
					[]core.Use{v.Use(core.ReadWrite)}, v.Arg(), driver.U64(words), driver.U64(extra)))
				w.must(v.Free(w.ctx))
			}},
	}
}
