package corpus

import (
	"context"
	"runtime"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

var undeclared = []core.FindingKind{names.FindingUndeclaredAccess}

// launchedOnDefault launches work on the default stream.
func (w *World) launchedOnDefault(name string, uses []core.Use, enqueue func(driver.Stream) error) error {
	return w.LaunchNamed(w.ctx, name, core.DefaultStream, uses, func(context.Context) error { return enqueue(0) })
}

// orderDeclared are launches whose declaration shows that they are wrong.
func orderDeclared() []Case {
	return []Case{
		{Name: "missing-declaration", Class: Order, What: "a launch declares its output, and not the input that another stream is writing", Declared: true,
			Kinds: undeclared, Culprit: "transform", Want: everywhere,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				from, to := w.Filled(x, "source", words, 1), w.Words(y, "target", words)
				w.Victim(from.ID)
				release := w.Hold(x)
				w.Write("update_source", x, from, 2)
				j := Job{Name: "transform", On: y, Uses: []core.Use{to.W(), from.R()}, Kernel: testkernels.CopyAdd, Args: []any{to.At(0), from.At(0), words, uint64(1)}}
				if bug {
					j.Uses = j.Uses[:1]
				}
				w.Refused(w.Try(j))
				release()
				w.Free(from, to)
			}},
		{Name: "missing-declaration-of-a-slice", Class: Order, What: "Kernel.Launch is given a slice as an argument that is not among the uses, and the slice is freed while it runs", Declared: true,
			Kinds: undeclared, Culprit: testkernels.CopyAdd, Want: everywhere,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				from, to := w.Slice(x, "source", words), w.Slice(y, "target", words)
				w.Victim(from.BlockID())
				w.FillSlice("fill_source", x, from, 1)
				w.FillSlice("fill_target", y, to, 1)
				uses := []core.Use{to.Use(core.Write), from.Use(core.Read)}
				if bug {
					uses = uses[:1]
				}
				release := w.Hold(y)
				w.Refused(w.kernels[testkernels.CopyAdd].Launch(w.ctx, w.Runtime, y.Lease, cuda.Blocks1D(words, 256), uses,
					to.Arg(), from.Arg(), driver.U64(words), driver.U64(0)))
				w.must(from.Free(w.ctx))
				release()
				w.must(to.Free(w.ctx))
			}},
		{Name: "declared-through-the-wrong-view", Class: Order, What: "a launch declares a view of one slice and is handed the address of another one that is being written", Declared: true,
			Kinds: undeclared, Culprit: "sum_part", Want: everywhere,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				first, second := w.Slice(x, "first", words), w.Slice(x, "second", words)
				w.Victim(second.BlockID())
				w.FillSlice("fill_first", x, first, 1)
				w.FillSlice("fill_second", x, second, 1)
				view, err := second.View(words/2, words)
				w.must(err)
				release := w.Hold(x)
				w.FillSlice("update_second", x, second, 2)
				j := y.reads(Addr(view.Ptr()), view.Len())
				j.Name = "sum_part"
				if bug {
					j.Uses = append(j.Uses, first.Use(core.Read))
				} else {
					j.Uses = append(j.Uses, view.Use(core.Read))
				}
				w.Refused(w.Try(j))
				release()
				w.must(view.Free(w.ctx))
				w.must(first.Free(w.ctx))
				w.must(second.Free(w.ctx))
			}},
		{Name: "stale-lease", Class: Order, What: "a launch names a stream whose lease was given back and has another holder by now", Declared: true,
			Kinds: []core.FindingKind{names.FindingStaleHandle, names.FindingMissingFence}, Culprit: "use_rows", Want: everywhere, Unseen: refusedCall,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				w.HarmsNone()
				if bug {
					w.must(y.Release())
				}
				w.Refused(w.Try(w.reading("use_rows", y, b)))
				w.Free(b)
			}},
		{Name: "dropped-recorder", Class: Order, What: "a recorder is neither committed nor aborted after its work was enqueued", Declared: true,
			Kinds: []core.FindingKind{names.FindingDroppedRecorder}, Want: everywhere, Unseen: "the runtime closes a dropped recorder as if it had been committed, so its work is fenced",
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.Harmed(x, "rows", words, 1)
				w.HarmsNone()
				w.recordAndDrop(y, b, bug)
				for bug && !w.watch.has(names.FindingDroppedRecorder) {
					w.must(w.ctx.Err())
					runtime.GC()
					time.Sleep(time.Millisecond)
				}
				w.Free(b)
			}},
	}
}

// recordAndDrop is a launch by a recorder. It is a function of its own so that
// nothing keeps the recorder afterwards.
//
//go:noinline
func (w *World) recordAndDrop(s *Stream, b *Mem, drop bool) {
	rec := core.NewStrictRecorder(s.ID()).Named("update_rows")
	w.must(rec.ReadWrite(b))
	w.must(rec.Preflight(w.ctx, w.Runtime))
	w.Raw(Job{On: s, Enqueue: w.Memset(b.At(0), 1, b.Requested)})
	if !drop {
		w.must(rec.Commit(w.ctx, w.Runtime))
	}
}
