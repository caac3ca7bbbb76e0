package corpus

import (
	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// reusedAddress is why the oracle sees nothing of a stale address that is used again.
const reusedAddress = "the address belongs to a live block, and the device cannot know that the old one was meant"

// temporalReuse are writes to memory that was freed and has left quarantine, or
// belongs to another block by then.
func temporalReuse() []Case {
	return []Case{
		{Name: "write-after-quarantine", Class: Temporal, Unmapped: true, What: "a block is written after it was freed and has left quarantine",
			Kinds: append(afterFree, names.FindingStrayWrite), Want: nowhere, Why: "nothing watches memory that went back to the driver's pool",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				w.RawLate(bug, s.writes(b.At(0), 10, 9), func() {
					w.Free(b)
					w.must(w.Drain(w.ctx))
				})
			}},
		{Name: "late-index-into-a-gap", Class: Temporal, What: "an index kept from before reaches a block that other frees have pushed out of quarantine",
			Kinds: append(afterFree, names.FindingStrayWrite), Culprit: "scatter", Want: onlyHunted, Stack: true,
			Why:       "nothing watches memory that went back to the pool but the canaries of the hunt, which hold the first 4 KiB of what leaves quarantine while there is room for them",
			Configure: func(c *fencepost.Config) { c.GuardConfig.QuarantineBytes = 128 << 10 },
			Run: func(w *World, bug bool) {
				s := w.Stream()
				low, high := w.Filled(s, "kept", words, 1), w.Filled(s, "gone", 4*words, 2)
				if low.ID.Ptr > high.ID.Ptr {
					w.failf("the second block lies before the first")
				}
				w.Victim(high.ID)
				w.HarmsNone() // by then the memory belongs to no block
				index := pick(bug, farIndex(low, high)-high.Words()/2+10, words-1)
				var others []*Mem
				for range 14 {
					others = append(others, w.Filled(s, "other", words, 3))
				}
				w.Free(high)
				w.Free(others...)
				w.Do(scatter("scatter", s, low, index))
				w.Free(low)
			}},
		{Name: "raw-write-to-reused", Class: Temporal, What: "a raw write by an old address lands in the block that has the address now",
			Kinds: append(afterFree, names.FindingReuseRace), Want: nowhere, Why: "it lands in bytes that another block owns, and looks like that block's own write",
			Unseen: reusedAddress, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				old := w.Enclosed(s, "old", words, 1)
				var next *Mem
				w.RawLate(bug, s.writes(old.At(0), 10, 9), func() {
					next = w.Reuse(s, old, "new")
					w.Victim(old.ID, next.ID)
					w.Write("fill_new", s, next, 2)
				})
				w.Free(next)
			}},
		{Name: "launch-over-reused-pointer", Class: Temporal, What: "a launch declares its own block and is handed an old address that belongs to a new block now", Declared: true,
			Kinds: staleAddress, Culprit: "flush_cache", Want: everywhere, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				mine, old := w.Filled(s, "mine", words, 1), w.Enclosed(s, "old", words, 2)
				at := pick(bug, old.At(0), mine.At(0))
				next := w.Reuse(s, old, "new")
				w.Victim(old.ID, next.ID)
				w.Write("fill_new", s, next, 2)
				w.Refused(w.Try(Job{Name: "flush_cache", On: s, Uses: []core.Use{mine.W()}, Kernel: testkernels.Write, Args: []any{at, 100, uint64(3)}}))
				w.Free(next, mine)
			}},
	}
}
