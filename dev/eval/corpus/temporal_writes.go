package corpus

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

var (
	afterFree = []core.FindingKind{names.FindingUseAfterFreeWrite}
	// staleAddress: the launch hands the device an address of freed memory.
	staleAddress = []core.FindingKind{names.FindingUndeclaredAccess, names.FindingUseAfterFreeWrite, names.FindingStaleHandle, names.FindingReuseRace}
)

const notTold = "the runtime is not told of the work: only bytes on the device show it"

// temporalWrites are writes to memory that was freed.
func temporalWrites() []Case {
	return []Case{
		{Name: "launch-over-stale-pointer", Class: Temporal, What: "a launch declares its own block and is handed a cached address of one that was freed", Declared: true,
			Kinds: staleAddress, Culprit: "flush_cache", Want: everywhere,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				mine, cached := w.Filled(s, "mine", words, 1), w.Filled(s, "cached", words, 2)
				w.Victim(cached.ID)
				at := pick(bug, cached.At(0), mine.At(0))
				w.Free(cached)
				w.Refused(w.Try(Job{Name: "flush_cache", On: s, Uses: []core.Use{mine.W()}, Kernel: testkernels.Write, Args: []any{at, 100, uint64(3)}}))
				w.Free(mine)
			}},
		{Name: "late-index", Class: Temporal, Unmapped: true, Unaddressed: true, What: "a launch over its own block reaches, by an index kept from before, one that was freed",
			Kinds: afterFree, Culprit: "scatter", Want: onDevice, Why: "the address that is handed over is the launch's own: only bytes on the device show where it writes",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				low, high := w.Pair(s, words)
				w.Victim(high.ID)
				index := pick(bug, farIndex(low, high), words-1)
				w.Free(high)
				w.Do(scatter("scatter", s, low, index))
				w.Free(low)
			}},
		{Name: "raw-memset-after-free", Class: Temporal, What: "a driver call behind the runtime's back clears a block after its free",
			Kinds: afterFree, Want: onDevice, Why: notTold,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				clearing := Job{On: s, Guilty: bug, Enqueue: w.Memset(b.At(0), 0, b.Requested)}
				w.RawLate(bug, clearing, func() { w.Free(b) })
			}},
		{Name: "late-write-between-spots", Class: Temporal, Unmapped: true, What: "one word in the first quarter of a large block is written after its free",
			Kinds: afterFree, Want: onlyHunted, Why: "tier 1 poisons a block of more than 1 MiB at its first, middle and last words only",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "large", 1<<19, 1)
				w.RawLate(bug, s.writes(b.At(1<<17), 1, 9), func() { w.Free(b) })
			}},
		{Name: "late-overrun", Class: Temporal, Unmapped: true, What: "a write after the free is behind the block, too",
			Kinds: append(behind, names.FindingUseAfterFreeWrite), Want: onDevice, Why: notTold,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				w.RawLate(bug, s.writes(b.At(pick(bug, words, words-1)), 1, 9), func() { w.Free(b) })
			}},
	}
}
