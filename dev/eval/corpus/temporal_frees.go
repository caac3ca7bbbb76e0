package corpus

import (
	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// refusedCall is why the oracle sees nothing of a misuse of a handle.
const refusedCall = "the runtime refuses the call, so nothing of it reaches the device"

// otherDevice opens a second runtime, on a simulated device with the number 1.
func (w *World) otherDevice() *fencepost.Runtime {
	rt, err := fencepost.Open(w.ctx, fencepost.Config{Device: fencepost.Sim, Ordinal: 1, Guard: w.Tier.Guard, OnFinding: w.watch.note})
	w.must(err)
	w.after = append(w.after, func() error { _, err := rt.Close(w.ctx); return err })
	return rt
}

// temporalFrees are blocks freed twice, by the wrong name, or never.
func temporalFrees() []Case {
	return []Case{
		{Name: "double-free", Class: Temporal, What: "two owners of a block free it", Declared: true,
			Kinds: []core.FindingKind{names.FindingDoubleFree}, Want: everywhere, Unseen: refusedCall,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				w.Free(b)
				if bug {
					w.FreeRefused(b.ID)
				}
			}},
		{Name: "double-free-after-reuse", Class: Temporal, What: "the second free comes when the address belongs to another block", Declared: true,
			Kinds: []core.FindingKind{names.FindingDoubleFree}, Want: everywhere, Unseen: refusedCall, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Enclosed(s, "old", words, 1)
				w.Victim(b.ID)
				next := w.Reuse(s, b, "new")
				w.Write("fill_new", s, next, 2)
				if bug {
					w.FreeRefused(b.ID)
				}
				w.Read("use_new", s, next)
				w.Free(next)
			}},
		{Name: "foreign-free", Class: Temporal, What: "a handle that no allocation returned is freed", Declared: true,
			Kinds: []core.FindingKind{names.FindingForeignFree}, Want: everywhere, Unseen: refusedCall,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Filled(s, "rows", words, 1)
				if bug {
					forged := b.ID
					forged.Generation += 1 << 40
					w.Victim(forged)
					w.FreeRefused(forged)
				}
				w.Free(b)
			}},
		{Name: "free-on-another-device", Class: Temporal, What: "a block of one device is freed at the runtime of another one", Declared: true,
			Kinds: []core.FindingKind{names.FindingForeignFree}, Want: everywhere, Unseen: refusedCall, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Filled(s, "rows", words, 1)
				other := w.otherDevice()
				theirs, err := other.Allocate(w.ctx, core.Request{Bytes: 1000, Tag: "theirs"})
				w.must(err)
				w.Victim(theirs.ID)
				if bug {
					w.FreeRefused(theirs.ID)
				}
				_, err = other.Deallocate(w.ctx, theirs.ID)
				w.must(err)
				w.Free(b)
			}},
		{Name: "free-by-outside-pointer", Class: Temporal, What: "a block is freed by a pointer that was advanced past its end", Declared: true,
			Kinds: staleKinds, Want: everywhere, Unseen: refusedCall,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				id := b.ID
				id.Ptr = uint64(b.At(words / 2)) // inside: as good as the start
				if bug {
					id.Ptr = uint64(b.At(words))
				}
				_, err := w.Deallocate(w.ctx, id)
				w.Refused(err)
				if err != nil {
					w.Free(b)
				}
			}},
		{Name: "slice-freed-twice", Class: Temporal, What: "a function frees a slice that it has deferred to free", Declared: true,
			Kinds: []core.FindingKind{names.FindingDoubleFree}, Want: everywhere, Unseen: refusedCall, Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				v := w.Slice(s, "scratch", words)
				w.Victim(v.BlockID())
				w.FillSlice("fill_scratch", s, v, 1)
				w.must(v.Free(w.ctx))
				if bug {
					w.Refused(v.Free(w.ctx))
				}
			}},
		{Name: "leak", Class: Temporal, What: "an early return leaves a block that is never freed", Declared: true,
			Kinds: []core.FindingKind{names.FindingLeak}, Want: Want{Late, Late, Late}, Why: "a block is known to be forgotten when the runtime is closed, and not before",
			Unseen: "a device does not mind who keeps its memory",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "forgotten", words, 1)
				if !bug {
					w.Free(b)
				}
			}},
		{Name: "leaked-view", Class: Temporal, What: "a slice is freed and a view of it is not, which keeps all of the memory", Declared: true,
			Kinds: []core.FindingKind{names.FindingLeak}, Want: Want{Late, Late, Late}, Why: "a block is known to be forgotten when the runtime is closed, and not before",
			Unseen: "a device does not mind who keeps its memory", Stack: true,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				v := w.Slice(s, "viewed", words)
				w.Victim(v.BlockID())
				w.FillSlice("fill_viewed", s, v, 1)
				view, err := v.View(10, 20)
				w.must(err)
				w.must(v.Free(w.ctx))
				if !bug {
					w.must(view.Free(w.ctx))
				}
			}},
	}
}
