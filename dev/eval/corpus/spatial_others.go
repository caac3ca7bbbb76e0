package corpus

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

const changesNothing = "a read changes no byte"

// spatialOthers reach another block than the one declared, or change nothing.
func spatialOthers() []Case {
	return []Case{
		{Name: "write-before-neighbour", Class: Spatial, What: "a launch that declares one block writes the word before another one",
			Kinds: before, Culprit: "merge_first", Want: onDevice, Why: "no address that is handed over lies in a block: only bytes on the device show it",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				low, high := w.Pair(s, words)
				w.Victim(high.ID)
				at := pick(bug, high.At(-1), low.At(words-1))
				w.Do(Job{Name: "merge_first", On: s, Uses: []core.Use{low.RW()}, Kernel: testkernels.Write, Args: []any{at, 1, uint64(5)}})
				w.Free(low, high)
			}},
		{Name: "wrong-block-argument", Class: Spatial, What: "a launch declares one block and is handed the address of another one, which it overwrites",
			Kinds: []core.FindingKind{names.FindingUndeclaredAccess}, Culprit: "merge_first", Want: everywhere,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				mine, other := w.Filled(s, "mine", words, 1), w.Filled(s, "other", words, 2)
				w.Victim(other.ID)
				at := pick(bug, other.At(0), mine.At(0))
				w.Refused(w.Try(Job{Name: "merge_first", On: s, Uses: []core.Use{mine.RW()}, Kernel: testkernels.Write, Args: []any{at, words, uint64(5)}}))
				w.Free(mine, other)
			}},
		{Name: "wild-index-into-live-block", Class: Spatial, What: "an index that is too large hits the middle of another live block",
			Kinds: append(behind, names.FindingUndeclaredAccess), Culprit: "scatter", Want: nowhere,
			Why: "it lands in bytes that another block owns, and looks like that block's own write",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				low, high := w.Pair(s, words)
				w.Victim(high.ID)
				index := pick(bug, farIndex(low, high), words-1)
				w.Do(scatter("scatter", s, low, index))
				w.Free(low, high)
			}},
		{Name: "view-overrun", Class: Spatial, What: "a launch over a view of the first half of a slice writes into the second half",
			Kinds: append(behind, names.FindingUndeclaredAccess), Culprit: "fill_half", Want: nowhere, Why: "a view is part of its block, whose bytes the launch may write; nothing stands between two views",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				v := w.Slice(s, "whole", words)
				w.Victim(v.BlockID())
				w.FillSlice("fill_whole", s, v, 1)
				half, err := v.View(0, words/2)
				w.must(err)
				n := half.Len() + pick(bug, 1, 0)
				w.Do(Job{Name: "fill_half", On: s, Uses: []core.Use{half.Use(core.Write)}, Kernel: testkernels.Write, Args: []any{Addr(half.Ptr()), n, uint64(2)}})
				w.must(half.Free(w.ctx))
				w.must(v.Free(w.ctx))
			}},
		{Name: "read-behind", Class: Spatial, What: "a kernel sums four words more than its block has",
			Kinds: []core.FindingKind{names.FindingOutOfBoundsRead}, Culprit: "sum_rows", Want: nowhere, Why: changesNothing,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				j := pick(bug, s.reads(b.At(0), words+4), s.reads(b.At(0), words))
				j.Name, j.Uses = "sum_rows", append(j.Uses, b.R())
				w.Do(j)
				w.Free(b)
			}},
		{Name: "read-before", Class: Spatial, What: "a kernel copies from where the row before the first one would be",
			Kinds: before, Culprit: "load_rows", Want: nowhere, Why: changesNothing,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				from, to := w.Filled(s, "source", words, 1), w.Words(s, "target", words)
				w.Victim(from.ID)
				start := pick(bug, -4, 0)
				w.Do(Job{Name: "load_rows", On: s, Uses: []core.Use{to.W(), from.R()}, Kernel: testkernels.CopyAdd, Args: []any{to.At(0), from.At(start), words, uint64(0)}})
				w.Free(from, to)
			}},
		{Name: "overrun-of-host-memory", Class: Spatial, What: "a kernel writes behind a page-locked host buffer",
			Kinds: behind, Culprit: "report", Want: nowhere, Why: "page-locked host memory is the driver's; the guard watches blocks", Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				buffer, err := cuda.AllocHost[uint64](w.Memory(), 10)
				w.must(err)
				n := pick(bug, 11, 10)
				w.Do(Job{Name: "report", On: s, Kernel: testkernels.Write, Args: []any{Addr(buffer.Ptr()), n, uint64(1)}})
				w.HarmsNone()
				w.Sync(s)
				w.must(buffer.Free(w.ctx))
			}},
		{Name: "wild-address", Class: Spatial, What: "a kernel writes to an address in no block", Faults: true,
			Kinds: []core.FindingKind{names.FindingStickyError}, Culprit: "follow_pointer", Want: Want{Late, Late, Late}, Why: "the device is lost, which names no block",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				at := pick(bug, 16, b.At(0))
				w.Do(Job{Name: "follow_pointer", On: s, Uses: []core.Use{b.RW()}, Kernel: testkernels.Illegal, Args: []any{at}})
				w.Sync(s)
				w.Free(b)
			}},
	}
}
