package corpus

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// words is the size of most blocks.
const words = 1000

var (
	behind = []core.FindingKind{names.FindingOutOfBoundsWrite}
	before = []core.FindingKind{names.FindingUnderflow}
)

// hostOnly is why the ledger misses what a kernel does inside of a launch.
const hostOnly = "the launch declares its block and writes beside it: only bytes on the device show that"

// scatter is a kernel that is given its block and writes one word of it by an
// index, which may lie outside.
func scatter(name string, s *Stream, b *Mem, index int) Job {
	j := Job{Name: name, On: s, Uses: []core.Use{b.RW()}, Kernel: testkernels.Write, Args: []any{b.At(index), 1, uint64(3)}}
	if index >= b.Words() { // this kernel is known to leave what it declares
		j.Kernel, j.Args = testkernels.OutOfBounds, []any{b.At(0), index, 1}
	}
	return j
}

// farIndex is that of the middle of another block, which lies higher.
func farIndex(from, to *Mem) int {
	return int((to.ID.Ptr-from.ID.Ptr)/wordBytes) + to.Words()/2
}

// spatialWrites are kernels that write beside their block.
func spatialWrites() []Case {
	return []Case{
		{Name: "overrun-word", Class: Spatial, What: "a kernel writes the word behind its block",
			Kinds: behind, Culprit: "scale_rows", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				extra := pick(bug, 1, 0)
				w.Do(Job{Name: "scale_rows", On: s, Uses: []core.Use{b.RW()}, Kernel: testkernels.OutOfBounds, Args: []any{b.At(0), words, extra}})
				w.Read("use_rows", s, b)
				w.Free(b)
			}},
		{Name: "overrun-of-a-leaked-block", Class: Spatial, What: "a kernel writes the word behind a block that is never freed",
			Kinds: behind, Culprit: "scale_rows", Want: Want{Late, Late, Found}, Why: "red zones are compared at the free, and of a block that is never freed when the runtime is closed; the ledger alone knows of the leak",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				if bug {
					w.Do(Job{Name: "scale_rows", On: s, Uses: []core.Use{b.RW()}, Kernel: testkernels.OutOfBounds, Args: []any{b.At(0), words, 1}})
					return
				}
				w.Do(Job{Name: "scale_rows", On: s, Uses: []core.Use{b.RW()}, Kernel: testkernels.OutOfBounds, Args: []any{b.At(0), words, 0}})
				w.Free(b)
			}},
		{Name: "overrun-into-slack", Class: Spatial, What: "a kernel rounds its block of 1000 bytes up to 1024 and clears the slack of the allocator",
			Kinds: behind, Culprit: "clear_rounded", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Bytes(s, "odd", 1000)
				w.Victim(b.ID)
				n := pick(bug, 128, 125)
				w.Do(Job{Name: "clear_rounded", On: s, Uses: []core.Use{b.W()}, Kernel: testkernels.Write, Args: []any{b.At(0), n, uint64(0)}})
				w.Read("use_odd", s, b)
				w.Free(b)
			}},
		{Name: "overrun-element-size", Class: Spatial, What: "a block of 32-bit values is given to a kernel of 64-bit ones with the number of values",
			Kinds: behind, Culprit: "init_values", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				const values = 48
				s := w.Stream()
				b := w.Bytes(s, "values", 4*values)
				w.Victim(b.ID)
				n := pick(bug, values, values/2)
				w.Do(Job{Name: "init_values", On: s, Uses: []core.Use{b.W()}, Kernel: testkernels.Write, Args: []any{b.At(0), n, uint64(7)}})
				w.Free(b)
			}},
		{Name: "underrun-word", Class: Spatial, What: "a kernel writes the word before its block",
			Kinds: before, Culprit: "shift_rows", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				first := pick(bug, -1, 0)
				w.Do(Job{Name: "shift_rows", On: s, Uses: []core.Use{b.RW()}, Kernel: testkernels.Write, Args: []any{b.At(first), 10, uint64(3)}})
				w.Read("use_rows", s, b)
				w.Free(b)
			}},
		{Name: "write-then-restore", Class: Spatial, What: "one launch uses the words behind its block as scratch and the next puts back what was there",
			Kinds: behind, Culprit: "borrow_scratch", Want: onlyHunted, Why: "the bytes are right again when the block is freed; only a comparison after every launch is in between",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b, saved := w.Filled(s, "rows", words, 1), w.Words(s, "saved", 2)
				w.Victim(b.ID)
				at := pick(bug, words, words-2)
				copies := func(name string, to, from Addr, uses ...core.Use) {
					w.Do(Job{Name: name, On: s, Uses: uses, Kernel: testkernels.CopyAdd, Args: []any{to, from, 2, uint64(0)}})
				}
				copies("save_scratch", saved.At(0), b.At(at), saved.W(), b.R())
				w.Do(scatter("borrow_scratch", s, b, at))
				copies("restore_scratch", b.At(at), saved.At(0), b.RW(), saved.R())
				w.Free(b, saved)
			}},
		{Name: "same-value-overrun", Class: Spatial, What: "a kernel reads the words behind its block and writes them back unchanged",
			Kinds: behind, Culprit: "pad_rows", Want: nowhere, Why: "no byte changes",
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "rows", words, 1)
				at := pick(bug, words, words-2)
				w.Do(Job{Name: "pad_rows", On: s, Uses: []core.Use{b.RW()}, Kernel: testkernels.CopyAdd, Args: []any{b.At(at), b.At(at), 2, uint64(0)}})
				w.Free(b)
			}},
	}
}
