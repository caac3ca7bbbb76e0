package corpus

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

const neverTold = "the runtime is not told of the access, and the bytes are a live block's"

// orderUndeclared are races of live blocks that the runtime is not told of, or
// is told wrongly.
func orderUndeclared() []Case {
	return []Case{
		{Name: "raw-read-during-write", Class: Order, What: "a reader on another stream is neither declared nor recorded",
			Kinds: unfenced, Want: nowhere, Why: neverTold,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				if bug {
					w.Raw(y.reads(b.At(0), words))
				} else {
					w.Read("use_rows", y, b)
				}
				w.Sync(y)
				w.Free(b)
			}},
		{Name: "declared-read-that-writes", Class: Order, What: "a launch declares that it reads a block, and writes it, beside a reader on another stream",
			Kinds: unfenced, Culprit: "normalise", Want: nowhere, Why: "the block's bytes may be anything, and what a kernel does with them is its own; only a seal would show it",
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				use := pick(bug, b.R(), b.W())
				w.Read("use_rows", x, b)
				w.Do(Job{Name: "normalise", On: y, Uses: []core.Use{use}, Kernel: testkernels.Write, Args: []any{b.At(0), words, uint64(1)}})
				w.Read("use_rows", x, b)
				w.Free(b)
			}},
		{Name: "enqueued-elsewhere", Class: Order, What: "a launch is declared on one stream and enqueued on another",
			Kinds: unfenced, Culprit: "use_rows", Want: nowhere, Why: "what was declared is in order; only the driver sees where the work went",
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				declared := pick(bug, x, y)
				j := y.reads(b.At(0), words)
				w.must(w.LaunchNamed(w.ctx, "use_rows", declared.ID(), []core.Use{b.R()}, func(context.Context) error { return w.enqueue(j, y.Handle()) }))
				w.Write("update_rows", x, b, 2)
				w.Sync(y)
				w.Free(b)
			}},
		{Name: "not-enqueued-by-mistake", Class: Order, What: "a launch function enqueues a reader, fails later, and says that nothing was enqueued",
			Kinds: unfenced, Culprit: "use_rows", Want: nowhere, Why: "the use was taken back, so the runtime was told that there is none",
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				j := y.reads(b.At(0), words)
				failed := errors.New("a second step failed")
				err := w.LaunchNamed(w.ctx, "use_rows", y.ID(), []core.Use{b.R()}, func(context.Context) error {
					if err := w.enqueue(j, y.Handle()); err != nil || !bug {
						return errors.Join(err, failed)
					}
					return core.NotEnqueued(failed)
				})
				if !errors.Is(err, failed) {
					w.failf("the launch returned %w", err)
				}
				w.Write("update_rows", x, b, 2)
				w.Sync(y)
				w.Free(b)
			}},
		{Name: "skipped-by-permissive", Class: Order, What: "a block goes through another framework and comes back as external memory, which a permissive recorder skips",
			Kinds: unfenced, Culprit: "imported", Want: nowhere, Why: "a permissive recorder skips what has no identity: that is what it is for",
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				var memory core.Tracked = b
				if bug {
					memory = cuda.ExternalColumn(cuda.External{Ptr: b.ID.Ptr, Bytes: b.Requested})
				}
				rec := core.NewPermissiveRecorder(y.ID()).Named("imported")
				w.must(rec.ReadWrite(memory))
				w.must(rec.Preflight(w.ctx, w.Runtime))
				w.Raw(Job{On: y, Enqueue: w.Memset(b.At(0), 3, b.Requested)})
				w.must(rec.Commit(w.ctx, w.Runtime))
				w.Sync(y)
				w.Free(b)
			}},
		{Name: "graph-declares-too-little", Class: Order, What: "a captured kernel reads a block that the capture does not name, and the block is overwritten on another stream",
			Kinds: append(undeclared, unfenced...), Culprit: "step_graph", Want: nowhere, Why: "addresses in a graph are the driver's; a launch of it hands none over",
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				table, out := w.Filled(x, "table", words, 1), w.Filled(x, "out", words, 2)
				w.Victim(table.ID)
				uses := []core.Use{out.W(), table.R()}
				if bug {
					uses = uses[:1]
				}
				step := Job{Kernel: testkernels.CopyAdd, Args: []any{out.At(0), table.At(0), words, uint64(1)}}
				g, err := y.Capture(w.ctx, "step_graph", uses, func(h driver.Stream) error { return w.enqueue(step, h) })
				w.must(err)
				w.must(g.Launch(w.ctx, w.Runtime, y.Lease))
				w.Write("update_table", x, table, 3)
				w.Sync(y)
				w.must(g.Close())
				w.Free(table, out)
			}},
	}
}
