package corpus

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

var (
	uninitialized = []core.FindingKind{names.FindingUninitializedRead}
	lateRead      = []core.FindingKind{names.FindingUseAfterFreeRead}
)

// anyBytes is why the oracle sees nothing of a read before a write.
const anyBytes = "the oracle judges order and bounds; what the bytes mean is the program's"

// temporalReads are reads of memory that was freed, or never written.
func temporalReads() []Case {
	return []Case{
		{Name: "raw-read-after-free", Class: Temporal, Unmapped: true, What: "a kernel behind the runtime's back reads a block after its free",
			Kinds: lateRead, Want: nowhere, Why: changesNothing + "; what it gets is NaN from tier 1 on, and a fault where freed blocks are unmapped",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				w.RawLate(bug, s.reads(b.At(0), words), func() { w.Free(b) })
			}},
		{Name: "raw-copy-out-after-free", Class: Temporal, What: "the driver copies a block to the host after its free",
			Kinds: lateRead, Want: nowhere, Why: changesNothing + "; what it gets is NaN from tier 1 on, and where freed blocks are unmapped the driver refuses the copy",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				out := make([]byte, 64)
				download := Job{On: s, Guilty: bug, Enqueue: func(h driver.Stream) error { return w.Driver().CopyToHostAsync(out, b.ID.Ptr, h) }}
				w.RawLate(bug, download, func() { w.Free(b) })
				w.Sync(s) // out must stay until the copy is done
			}},
		{Name: "copy-from-stale-pointer", Class: Temporal, What: "a launch declares where it copies to and not from where, which was freed", Declared: true,
			Kinds: append(staleAddress, names.FindingUseAfterFreeRead), Culprit: "restore", Want: everywhere,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				to, from := w.Words(s, "target", words), w.Filled(s, "backup", words, 2)
				w.Victim(from.ID)
				restore := Job{Name: "restore", On: s, Uses: []core.Use{to.W(), from.R()}, Kernel: testkernels.CopyAdd, Args: []any{to.At(0), from.At(0), words, uint64(0)}}
				if bug {
					w.Free(from)
					restore.Uses = restore.Uses[:1]
				}
				w.Refused(w.Try(restore))
				if !bug {
					w.Free(from)
				}
				w.Free(to)
			}},
		{Name: "read-before-any-write", Class: Temporal, What: "a launch reads a block that nothing was written to", Declared: true,
			Kinds: uninitialized, Culprit: "use_rows", Want: everywhere, Unseen: anyBytes,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Words(s, "rows", words)
				w.Victim(b.ID)
				if !bug {
					w.Write("fill_rows", s, b, 1)
				}
				w.Refused(w.Try(w.reading("use_rows", s, b)))
				w.Free(b)
			}},
		{Name: "download-before-any-write", Class: Temporal, What: "a slice is downloaded that no launch and no copy wrote to", Declared: true,
			Kinds: uninitialized, Culprit: "copy.to_host", Want: everywhere, Unseen: anyBytes, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				v := w.Slice(s, "result", 100)
				w.Victim(v.BlockID())
				if !bug {
					w.must(cuda.Memset(w.ctx, v, s.ID(), 0))
				}
				_, err := cuda.Download(w.ctx, v, s.ID())
				w.Refused(err)
				w.must(v.Free(w.ctx))
			}},
		{Name: "copy-before-any-write", Class: Temporal, What: "a fresh slice is copied into another one", Declared: true,
			Kinds: uninitialized, Culprit: "copy.on_device", Want: everywhere, Unseen: anyBytes, Stack: true,
			Run: func(w *World, bug bool) {
				s, y := w.Stream(), w.Stream()
				from, to := w.Slice(s, "source", 100), w.Slice(y, "target", 100)
				w.Victim(from.BlockID())
				if !bug {
					w.FillSlice("fill_source", s, from, 4)
				}
				w.Refused(cuda.CopyOnDevice(w.ctx, to, from, y.ID()))
				w.must(errors.Join(from.Free(w.ctx), to.Free(w.ctx)))
			}},
		{Name: "read-after-aborted-write", Class: Temporal, What: "the only launch that would have written a block was aborted", Declared: true,
			Kinds: uninitialized, Culprit: "use_rows", Want: everywhere, Unseen: anyBytes, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Words(s, "rows", words)
				w.Victim(b.ID)
				t, err := w.Core().PrepareUse(w.ctx, core.UseRequest{Stream: s.ID(), Launch: "fill_rows", Uses: []core.Use{b.W()}})
				w.must(err)
				if bug {
					w.must(w.Core().AbortUse(w.ctx, t))
				} else {
					w.Raw(Job{On: s, Enqueue: w.Memset(b.At(0), 1, b.Requested)})
					w.must(w.Core().FinishUse(w.ctx, t))
				}
				w.Refused(w.Try(w.reading("use_rows", s, b)))
				w.Free(b)
			}},
	}
}
