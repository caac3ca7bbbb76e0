package corpus

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// cleanRuntimes use several runtimes.
func cleanRuntimes() []Case {
	return []Case{
		clean("two-devices", "two runtimes on two devices are used in turn, whose handles and streams look alike", func(w *World) {
			s := w.Stream()
			other := w.otherDevice()
			b := w.Filled(s, "rows", words, 1)
			theirs, err := other.Allocate(w.ctx, core.Request{Bytes: words * wordBytes, Tag: "rows"})
			w.must(err)
			w.Read("use_rows", s, b)
			_, err = other.Deallocate(w.ctx, theirs.ID)
			w.must(err)
			w.Free(b)
		}),
		clean("carried-by-the-host", "values go from one device to another one through the host, for want of a way between them", func(w *World) {
			s := w.Stream()
			other := w.otherDevice()
			v := w.Slice(s, "here", 100)
			w.FillSlice("fill_here", s, v, 5)
			values := w.Download(s, v)
			there, err := cuda.Alloc[uint64](w.ctx, other.Memory(), 100, cuda.AllocOptions{Tag: "there"})
			w.must(err)
			w.must(cuda.CopyToDevice(w.ctx, there, core.DefaultStream, values))
			back, err := cuda.Download(w.ctx, there, core.DefaultStream)
			w.must(err)
			if back[99] != 5 {
				w.failf("what came back is %d", back[99])
			}
			w.must(there.Free(w.ctx))
			w.must(v.Free(w.ctx))
		}),
		clean("untracked-manager-beside", "code that is not migrated allocates around the runtime, next to blocks", func(w *World) {
			s := w.Stream()
			manager := cuda.NewUntrackedManager(w.Driver(), w.Streams(), 1<<20)
			old, err := cuda.Alloc[uint64](w.ctx, manager, words, cuda.AllocOptions{Tag: "old"})
			w.must(err)
			v := w.Slice(s, "new", words)
			w.FillSlice("fill_new", s, v, 1)
			w.must(cuda.Memset(w.ctx, old, s.ID(), 7))
			w.Sync(s)
			w.must(old.Free(w.ctx))
			w.must(v.Free(w.ctx))
		}),
	}
}
