package corpus

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

var sealBroken = []core.FindingKind{names.FindingSealedWrite}

// sealedTable is a filled block that is declared read-only.
func (w *World) sealedTable(s *Stream) *Mem {
	b := w.Harmed(s, "weights", words, 1)
	w.must(w.Guard().Seal(w.ctx, b.ID))
	return b
}

// atSeal is why the ledger misses what is not declared.
const atSeal = "no write is declared: only the checksum on the device shows it"

// sealedSpatial are stray writes into blocks that are declared read-only.
func sealedSpatial() []Case {
	return []Case{
		{Name: "wild-index-into-sealed-block", Class: Spatial, What: "an index that is too large hits the middle of a block that is declared read-only",
			Kinds: sealBroken, Culprit: "scatter", Want: onDevice, Why: atSeal, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				low, high := w.Pair(s, words)
				w.Victim(high.ID)
				w.must(w.Guard().Seal(w.ctx, high.ID))
				index := pick(bug, farIndex(low, high), words-1)
				w.Do(scatter("scatter", s, low, index))
				w.Read("use_first", s, low)
				w.Free(low, high)
			}},
	}
}

// sealedOrder are writes to read-only blocks by those who may only read them.
func sealedOrder() []Case {
	return []Case{
		{Name: "declared-write-of-sealed", Class: Order, What: "a launch declares that it writes a block which its owner has declared read-only and others read", Declared: true,
			Kinds: sealBroken, Culprit: "fine_tune", Want: everywhere, Unseen: "the runtime fences the write like any other: that it may not be written is the owner's rule",
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b := w.sealedTable(x)
				w.Read("use_weights", y, b)
				if bug {
					w.Refused(w.Try(Job{Name: "fine_tune", On: x, Uses: []core.Use{b.RW()}, Kernel: testkernels.Write, Args: []any{b.At(0), 10, uint64(2)}}))
				} else {
					w.must(w.Guard().Unseal(w.ctx, b.ID))
					w.Write("fine_tune", x, b, 2)
				}
				w.Free(b)
			}},
		{Name: "reader-of-sealed-writes", Class: Order, What: "a launch declares that it reads a read-only block, and writes to it beside a reader on another stream",
			Kinds: sealBroken, Culprit: "normalise", Want: onDevice, Why: atSeal,
			Run: func(w *World, bug bool) {
				x, y := w.Stream(), w.Stream()
				b, out := w.sealedTable(x), w.Filled(x, "out", words, 0)
				to := pick(bug, b, out)
				w.Read("use_weights", y, b)
				w.Sync(y)
				w.Do(Job{Name: "normalise", On: x, Uses: []core.Use{b.R(), out.W()}, Kernel: testkernels.CopyAdd, Args: []any{to.At(0), b.At(0), 10, uint64(1)}})
				w.Read("use_weights", y, b)
				w.Free(b, out)
			}},
	}
}

// cleanSeals are read-only blocks that are not written meanwhile.
func cleanSeals() []Case {
	return []Case{
		clean("sealed-and-read", "a sealed block is read by several streams, its seals are checked, and it is freed sealed", func(w *World) {
			x, y := w.Stream(), w.Stream()
			b := w.sealedTable(x)
			w.Read("use_weights", x, b)
			w.Read("use_weights", y, b)
			w.must(w.Guard().CheckSeals(w.ctx))
			w.Read("use_weights", y, b)
			w.Free(b)
		}),
		clean("sealed-unsealed-rewritten", "a seal is ended before the block is written, and set again behind that", func(w *World) {
			x, y := w.Stream(), w.Stream()
			b := w.sealedTable(x)
			for i := range uint64(3) {
				w.Read("use_weights", y, b)
				w.must(w.Guard().Unseal(w.ctx, b.ID))
				w.Write("update_weights", y, b, i)
				w.must(w.Guard().Seal(w.ctx, b.ID))
			}
			w.Free(b)
		}),
	}
}
