package corpus

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// spatialCopies are the driver's copies and fills that reach beside a block, each
// declared as a launch that does the same within it.
func spatialCopies() []Case {
	return []Case{
		{Name: "memset-byte-behind", Class: Spatial, What: "a memset of a block with an odd size clears one byte too many",
			Kinds: behind, Culprit: "clear_text", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Bytes(s, "text", 1001)
				w.Victim(b.ID)
				n := pick(bug, 1002, uint64(1001))
				w.Do(Job{Name: "clear_text", On: s, Uses: []core.Use{b.W()}, Guilty: bug, Enqueue: w.Memset(b.Byte(0), 0, n)})
				w.Free(b)
			}},
		{Name: "memset-shifted-start", Class: Spatial, What: "a memset begins in the middle of the first value and keeps its length",
			Kinds: behind, Culprit: "clear_values", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Harmed(s, "values", words, 1)
				start := pick(bug, 4, 0)
				w.Do(Job{Name: "clear_values", On: s, Uses: []core.Use{b.W()}, Guilty: bug, Enqueue: w.Memset(b.Byte(start), 0, words*wordBytes)})
				w.Free(b)
			}},
		{Name: "copy-longer-than-target", Class: Spatial, What: "a copy on the device takes the length of its source, which is longer than the target",
			Kinds: behind, Culprit: "gather", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				from, to := w.Filled(s, "source", words+8, 1), w.Filled(s, "target", words, 2)
				w.Victim(to.ID)
				n := pick(bug, from.Requested, to.Requested)
				w.Do(Job{Name: "gather", On: s, Uses: []core.Use{to.W(), from.R()}, Guilty: bug,
					Enqueue: func(h driver.Stream) error { return w.Driver().CopyOnDeviceAsync(to.ID.Ptr, from.ID.Ptr, n, h) }})
				w.Free(from, to)
			}},
		{Name: "upload-longer-than-target", Class: Spatial, What: "the host uploads a buffer with a header that the block has no room for",
			Kinds: behind, Culprit: "upload", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				b := w.Words(s, "rows", words)
				w.Victim(b.ID)
				data := make([]byte, words*wordBytes, words*wordBytes+16)
				if bug {
					data = data[:cap(data)]
				}
				w.Do(Job{Name: "upload", On: s, Uses: []core.Use{b.W()}, Guilty: bug,
					Enqueue: func(h driver.Stream) error { return w.Driver().CopyToDeviceAsync(b.ID.Ptr, data, h) }})
				w.Sync(s) // data must stay until the copy is done
				w.Free(b)
			}},
		{Name: "copy-starts-before-target", Class: Spatial, What: "a kernel copies rows to where the row before the first one would be",
			Kinds: before, Culprit: "move_rows", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				from, to := w.Filled(s, "source", words, 1), w.Filled(s, "target", words, 2)
				w.Victim(to.ID)
				start := pick(bug, -4, 0)
				w.Do(Job{Name: "move_rows", On: s, Uses: []core.Use{to.W(), from.R()}, Kernel: testkernels.CopyAdd, Args: []any{to.At(start), from.At(0), words - 4, uint64(0)}})
				w.Free(from, to)
			}},
		{Name: "overrun-through-red-zone", Class: Spatial, What: "a kernel takes a number of words for one of rows and goes on over all that lies behind",
			Kinds: []core.FindingKind{names.FindingOutOfBoundsWrite, names.FindingUnderflow}, Culprit: "clear_rows", Want: onDevice, Why: hostOnly,
			Run: func(w *World, bug bool) {
				s := w.Stream()
				low, high := w.Adjacent(s, words)
				w.Victim(low.ID, high.ID)
				n := low.Words()
				if bug { // the other one's bytes are the program's own
					n = int(high.ID.Ptr-low.ID.Ptr)/wordBytes + 2
				}
				w.Do(Job{Name: "clear_rows", On: s, Uses: []core.Use{low.W()}, Kernel: testkernels.Write, Args: []any{low.At(0), n, uint64(0)}})
				w.Free(low, high)
			}},
	}
}
