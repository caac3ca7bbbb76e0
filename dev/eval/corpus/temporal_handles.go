package corpus

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

var staleKinds = []core.FindingKind{names.FindingStaleHandle}

// stale is a case in which a call names a block after its free. use is called
// with the free before it if the bug is there, and behind it if not.
func stale(name, what, culprit string, use func(w *World, s *Stream, v *cuda.Slice[uint64], free func())) Case {
	return Case{Name: name, Class: Temporal, What: what, Declared: true, Kinds: staleKinds, Culprit: culprit, Want: everywhere, Unseen: refusedCall, Stack: true,
		Run: func(w *World, bug bool) {
			s := w.Stream()
			v := w.Slice(s, "rows", words)
			w.Victim(v.BlockID())
			w.FillSlice("fill_rows", s, v, 1)
			free := func() {
				if bug {
					w.must(v.Free(w.ctx))
				}
			}
			use(w, s, v, free)
			if !bug {
				w.must(v.Free(w.ctx))
			}
		}}
}

// temporalHandles are calls that name a block by a handle that was freed.
func temporalHandles() []Case {
	return []Case{
		stale("launch-after-free", "a launch declares a block that was freed", "use_rows",
			func(w *World, s *Stream, v *cuda.Slice[uint64], free func()) {
				free()
				j := s.reads(Addr(v.Ptr()), words)
				j.Name, j.Uses = "use_rows", append(j.Uses, v.Use(core.Read))
				w.Refused(w.Try(j))
			}),
		stale("upload-after-free", "the host uploads into a slice that was freed", "copy.to_device",
			func(w *World, s *Stream, v *cuda.Slice[uint64], free func()) {
				free()
				w.Refused(cuda.CopyToDevice(w.ctx, v, s.ID(), make([]uint64, 10)))
				w.Sync(s)
			}),
		stale("download-after-free", "the host downloads from a slice that was freed", "copy.to_host",
			func(w *World, s *Stream, v *cuda.Slice[uint64], free func()) {
				free()
				_, err := cuda.Download(w.ctx, v, s.ID())
				w.Refused(err)
			}),
		stale("memset-after-free", "a slice is cleared for its next use after it was freed", "memset",
			func(w *World, s *Stream, v *cuda.Slice[uint64], free func()) {
				free()
				w.Refused(cuda.Memset(w.ctx, v, s.ID(), 0))
			}),
		stale("graph-after-free", "a graph is launched once more after a block that it was captured over was freed", "step_graph",
			func(w *World, s *Stream, v *cuda.Slice[uint64], free func()) {
				g, err := s.Capture(w.ctx, "step_graph", []core.Use{v.Use(core.ReadWrite)}, func(h driver.Stream) error {
					return w.enqueue(s.writes(Addr(v.Ptr()), words, 2), h)
				})
				w.must(err)
				w.must(g.Launch(w.ctx, w.Runtime, s.Lease))
				free()
				w.Refused(g.Launch(w.ctx, w.Runtime, s.Lease))
				w.Sync(s)
				w.must(g.Close())
			}),
		stale("recorder-after-free", "a recorder notes a block that is freed before preflight", "recorded",
			func(w *World, s *Stream, v *cuda.Slice[uint64], free func()) {
				rec := core.NewStrictRecorder(s.ID()).Named("recorded")
				w.must(rec.Write(v))
				free()
				err := rec.Preflight(w.ctx, w.Runtime)
				w.Refused(err)
				if err != nil {
					w.must(rec.Abort(w.ctx, w.Runtime))
					return
				}
				w.Raw(Job{On: s, Enqueue: w.Memset(Addr(v.Ptr()), 0, v.Bytes())})
				w.must(rec.Commit(w.ctx, w.Runtime))
			}),
		stale("column-after-free", "a column outlives the slice that it was made of", "consume",
			func(w *World, s *Stream, v *cuda.Slice[uint64], free func()) {
				column := cuda.OwnedColumn(v)
				free()
				rec := core.NewStrictRecorder(s.ID()).Named("consume")
				w.must(rec.Read(column))
				err := rec.Preflight(w.ctx, w.Runtime)
				w.Refused(err)
				if err != nil {
					w.must(rec.Abort(w.ctx, w.Runtime))
					return
				}
				w.must(rec.Commit(w.ctx, w.Runtime))
			}),
		stale("record-after-free", "work is recorded over a block that was freed before it was enqueued", "",
			func(w *World, s *Stream, v *cuda.Slice[uint64], free func()) {
				free()
				w.Refused(w.Core().RecordBlockUse(w.ctx, v.BlockID(), s.ID()))
			}),
	}
}
