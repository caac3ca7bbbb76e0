package corpus

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// cleanLaunches use the launch protocol in unusual and legal ways.
func cleanLaunches() []Case {
	return []Case{
		clean("aborted-and-retried", "a recorder is aborted, and another one launches the same work", func(w *World) {
			s := w.Stream()
			b := w.Words(s, "rows", words)
			for _, abort := range []bool{true, false} {
				rec := core.NewStrictRecorder(s.ID()).Named("fill_rows")
				w.must(rec.Write(b))
				w.must(rec.Preflight(w.ctx, w.Runtime))
				if abort {
					w.must(rec.Abort(w.ctx, w.Runtime))
					continue
				}
				w.Raw(Job{On: s, Enqueue: w.Memset(b.At(0), 1, b.Requested)})
				w.must(rec.Commit(w.ctx, w.Runtime))
			}
			w.Read("use_rows", s, b)
			w.Free(b)
		}),
		clean("preflight-repeated", "a preflight is refused because a conflicting launch is announced, and is repeated when that has ended", func(w *World) {
			x, y := w.Stream(), w.Stream()
			b := w.Filled(x, "rows", words, 1)
			t, err := w.Core().PrepareUse(w.ctx, core.UseRequest{Stream: x.ID(), Launch: "announced", Uses: []core.Use{b.W()}})
			w.must(err)
			rec := core.NewStrictRecorder(y.ID()).Named("patient")
			w.must(rec.Write(b))
			if err := rec.Preflight(w.ctx, w.Runtime); !errors.Is(err, core.ErrStreamMisuse) {
				w.failf("preflight beside a conflicting launch: %v", err)
			}
			w.must(w.Core().AbortUse(w.ctx, t))
			w.must(rec.Preflight(w.ctx, w.Runtime))
			w.Raw(w.overwriting(y, b))
			w.must(rec.Commit(w.ctx, w.Runtime))
			w.Free(b)
		}),
		clean("permissive-with-foreign-memory", "a permissive recorder is told of memory that the runtime does not know, beside a block", func(w *World) {
			s := w.Stream()
			foreign, err := w.Driver().MemAlloc(4096)
			w.must(err)
			b := w.Filled(s, "rows", words, 1)
			released := false
			column := cuda.ExternalColumn(cuda.External{Ptr: foreign, Bytes: 4096, Release: func() { released = true }})
			rec := core.NewPermissiveRecorder(s.ID()).Named("import")
			w.must(rec.ReadWrite(b))
			w.must(rec.Read(column))
			w.must(rec.Preflight(w.ctx, w.Runtime))
			w.Raw(Job{On: s, Kernel: testkernels.CopyAdd, Args: []any{b.At(0), b.At(10), 5, uint64(0)}})
			w.must(rec.Commit(w.ctx, w.Runtime))
			w.Sync(s)
			column.Release()
			w.must(w.Driver().MemFree(foreign))
			w.Free(b)
			if !released {
				w.failf("the producer was not told")
			}
		}),
		clean("argument-of-foreign-memory", "a kernel is handed addresses that no block of the runtime holds: the driver's own memory and a host buffer", func(w *World) {
			s := w.Stream()
			foreign, err := w.Driver().MemAlloc(8 * wordBytes)
			w.must(err)
			buffer, err := cuda.AllocHost[uint64](w.Memory(), 8)
			w.must(err)
			b := w.Filled(s, "rows", words, 6)
			for _, to := range []uint64{foreign, buffer.Ptr()} {
				w.Do(Job{Name: "export", On: s, Uses: []core.Use{b.R()}, Kernel: testkernels.CopyAdd, Args: []any{Addr(to), b.At(0), 8, uint64(1)}})
			}
			w.Sync(s)
			if got := buffer.Values()[7]; got != 7 {
				w.failf("the kernel wrote %d", got)
			}
			w.must(w.Driver().MemFree(foreign))
			w.must(buffer.Free(w.ctx))
			w.Free(b)
		}),
		clean("nothing-declared-nothing-touched", "launches without uses and kernels over no words", func(w *World) {
			s := w.Stream()
			b := w.Filled(s, "rows", words, 1)
			w.must(w.LaunchNamed(w.ctx, "empty", s.ID(), nil, func(context.Context) error { return nil }))
			w.Do(Job{Name: "no_words", On: s, Uses: []core.Use{b.R()}, Kernel: testkernels.Write, Args: []any{b.At(0), 0, uint64(9)}})
			w.Free(b)
		}),
		clean("empty-slices", "empty slices and views are used, copied, viewed and freed", func(w *World) {
			s := w.Stream()
			none, some := w.Slice(s, "none", 0), w.Slice(s, "some", 10)
			w.FillSlice("fill_some", s, some, 1)
			w.Do(Job{Name: "fill_none", On: s, Uses: []core.Use{none.Use(core.Write), some.Use(core.Read)}, Kernel: testkernels.CopyAdd, Args: []any{Addr(0), Addr(some.Ptr()), 0, uint64(0)}})
			view, err := some.View(10, 10)
			w.must(err)
			w.must(cuda.CopyOnDevice(w.ctx, some, none, s.ID()))
			w.must(cuda.CopyOnDevice(w.ctx, some, view, s.ID()))
			w.must(errors.Join(view.Free(w.ctx), none.Free(w.ctx), some.Free(w.ctx)))
		}),
		clean("views-side-by-side", "two views of one slice are written by two streams, each its half", func(w *World) {
			x, y := w.Stream(), w.Stream()
			v := w.Slice(x, "whole", words)
			low, err := v.View(0, words/2)
			w.must(err)
			high, err := v.View(words/2, words)
			w.must(err)
			w.must(v.Free(w.ctx))
			w.FillSlice("fill_low", x, low, 1)
			w.FillSlice("fill_high", y, high, 2)
			w.must(low.Free(w.ctx))
			if got := w.Download(x, high); got[0] != 2 {
				w.failf("the upper half holds %d", got[0])
			}
			w.must(high.Free(w.ctx))
		}),
		clean("graph-launched-many-times", "a captured graph over two blocks is launched on two streams while others read its output", func(w *World) {
			x, y := w.Stream(), w.Stream()
			in, out := w.Filled(x, "in", words, 1), w.Filled(x, "out", words, 0)
			g, err := x.Capture(w.ctx, "step", []core.Use{in.R(), out.W()}, func(h driver.Stream) error {
				return w.enqueue(Job{Kernel: testkernels.CopyAdd, Args: []any{out.At(0), in.At(0), words, uint64(1)}}, h)
			})
			w.must(err)
			for range 3 {
				w.must(g.Launch(w.ctx, w.Runtime, x.Lease))
				w.Read("use_out", y, out)
				w.must(g.Launch(w.ctx, w.Runtime, y.Lease))
			}
			w.Sync(x)
			w.Sync(y)
			w.must(g.Close())
			w.Free(in, out)
		}),
		clean("same-block-twice", "a launch names one block twice, as input and as output, under two pointers", func(w *World) {
			s := w.Stream()
			b := w.Filled(s, "rows", words, 1)
			inner := b.R()
			inner.Block.Ptr += 80
			w.Do(Job{Name: "in_place", On: s, Uses: []core.Use{inner, b.W()}, Kernel: testkernels.CopyAdd, Args: []any{b.At(0), b.At(10), 10, uint64(1)}})
			w.Free(b)
		}),
		clean("columns-handed-over", "a slice becomes a column, the column is exported, imported and used until the producer is told", func(w *World) {
			s, y := w.Stream(), w.Stream()
			v := w.Slice(s, "exported", words)
			w.FillSlice("fill_exported", s, v, 1)
			owned := cuda.OwnedColumn(v)
			rec := core.NewStrictRecorder(y.ID()).Named("consume")
			w.must(rec.Read(owned))
			w.must(rec.Preflight(w.ctx, w.Runtime))
			imported := cuda.ExternalColumn(cuda.External{Ptr: owned.Ptr(), Bytes: owned.Bytes(), Release: func() { w.must(v.Free(w.ctx)) }})
			w.Raw(y.reads(Addr(imported.Ptr()), words))
			w.must(rec.Commit(w.ctx, w.Runtime))
			imported.Release()
		}),
	}
}
