package corpus

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// switched is a program during which the guard goes from one mode to another
// between a block's allocation and its free, and back behind it.
func switched(from, to debugguard.Mode) Case {
	return clean(fmt.Sprintf("from-%v-to-%v", from, to), fmt.Sprintf("the guard is switched from %v to %v between the allocation and the free of blocks, and back", from, to), func(w *World) {
		s, y := w.Stream(), w.Stream()
		w.must(w.Guard().SetMode(w.ctx, from))
		b, kept := w.Filled(s, "rows", words, 1), w.Filled(y, "kept", words, 2)
		gone := w.Filled(s, "gone", words, 3)
		w.Free(gone)
		w.must(w.Guard().SetMode(w.ctx, to))
		w.Write("update_rows", y, b, 2)
		later := w.Filled(s, "later", words, 4)
		w.Read("use_rows", s, b)
		w.Free(b)
		w.must(w.Guard().SetMode(w.ctx, from))
		w.Read("use_kept", s, kept)
		w.Read("use_later", y, later)
		w.Free(kept, later)
	})
}

// cleanModes turn the guard while blocks live.
func cleanModes() []Case {
	all := []Case{
		clean("tags-hunted-and-let-go", "tags are hunted and let go again while blocks of them live", func(w *World) {
			s := w.Stream()
			before := w.Filled(s, "hunted", words, 1)
			w.Guard().HuntTags("hunted", "other")
			during, other := w.Filled(s, "hunted", words, 2), w.Filled(s, "other", words, 3)
			w.Free(before)
			w.Guard().HuntTags("other")
			w.Read("use_hunted", s, during)
			w.Guard().HuntTags()
			w.Free(during, other)
		}),
		clean("flushed-at-any-time", "quarantine is emptied between the operations of an ordinary program", func(w *World) {
			x, y := w.Stream(), w.Stream()
			for i := range 5 {
				b := w.Filled(x, "rows", words, uint64(i))
				w.must(w.Guard().Flush(w.ctx))
				w.Read("use_rows", y, b)
				w.Free(b)
				w.must(w.ReapPending(w.ctx))
			}
		}),
	}
	modes := []debugguard.Mode{debugguard.Off, debugguard.Ledger, debugguard.Sample, debugguard.Hunt}
	for _, from := range modes {
		for _, to := range modes {
			if from != to {
				all = append(all, switched(from, to))
			}
		}
	}
	return all
}
