package corpus

import (
	"fmt"
	"math"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// clean is a program that looks suspicious and is not.
func clean(name, what string, run func(w *World)) Case {
	return Case{Name: name, Class: Clean, What: what, Run: func(w *World, _ bool) { run(w) }}
}

// memset declares and does a memset of part of a block.
func (w *World) memset(s *Stream, b *Mem, from int, value byte, bytes uint64) {
	w.Do(Job{Name: "memset_part", On: s, Uses: []core.Use{b.W()}, Enqueue: w.Memset(b.Byte(from), value, bytes)})
}

// cleanBytes write the bytes that are theirs, to the very ends.
func cleanBytes() []Case {
	return []Case{
		clean("last-byte", "writes the last byte of a block and nothing else", func(w *World) {
			s := w.Stream()
			b := w.Bytes(s, "rows", 1001)
			w.memset(s, b, 1000, 1, 1)
			w.memset(s, b, 0, 1, 1)
			w.Free(b)
		}),
		clean("whole-odd-block", "writes a block of an odd size from end to end", func(w *World) {
			s := w.Stream()
			b := w.Bytes(s, "rows", 4097)
			w.memset(s, b, 0, 0xFF, 4097)
			w.Free(b)
		}),
		clean("full-of-nan", "fills a block with NaN, as poison is", func(w *World) {
			s := w.Stream()
			b := w.Filled(s, "activations", words, math.Float64bits(math.NaN()))
			w.Read("use_nan", s, b)
			w.Write("fill_nan16", s, b, 0xFFF1_FF81_FF81_FF81)
			w.Free(b)
		}),
		clean("copies-poison-look-alike", "copies a block of NaN into another one, whole, which is freed later", func(w *World) {
			s := w.Stream()
			from, to := w.Filled(s, "source", words, 0xFFF1_FF81_FF81_FF81), w.Words(s, "target", words)
			w.Copy("copy_nan", s, to, from, words)
			w.Free(from)
			w.Read("use_copy", s, to)
			w.Free(to)
		}),
		clean("canary-look-alike", "fills a block with the bytes that canaries are made of elsewhere", func(w *World) {
			s := w.Stream()
			b := w.Bytes(s, "rows", 2048)
			for i, value := range []byte{0xA5, 0x5A, 0xAB, 0xCD, 0xFD, 0xDE, 0x00, 0xFF} {
				w.memset(s, b, 256*i, value, 256)
			}
			w.Free(b)
		}),
		clean("one-byte", "allocates and writes single bytes", func(w *World) {
			s := w.Stream()
			a, b := w.Bytes(s, "first", 1), w.Bytes(s, "second", 1)
			w.memset(s, a, 0, 1, 1)
			w.memset(s, b, 0, 2, 1)
			w.Do(Job{Name: "copy_byte", On: s, Uses: []core.Use{a.W(), b.R()},
				Enqueue: func(h driver.Stream) error { return w.Driver().CopyOnDeviceAsync(a.ID.Ptr, b.ID.Ptr, 1, h) }})
			w.Free(b, a)
		}),
		clean("odd-sizes", "writes blocks of odd sizes in full, side by side", func(w *World) {
			s := w.Stream()
			var all []*Mem
			for _, n := range []uint64{1, 3, 7, 255, 256, 257, 511, 513, 4095, 65537} {
				b := w.Bytes(s, "odd", n)
				w.memset(s, b, 0, byte(n), n)
				all = append(all, b)
			}
			w.Free(all...)
		}),
		clean("end-pointer", "hands a kernel the address one past the end of its block, as C++ does with ranges, which is where another block may begin", func(w *World) {
			s := w.Stream()
			a, b := w.Filled(s, "first", 1024, 1), w.Filled(s, "second", 1024, 2)
			for _, m := range []*Mem{a, b} {
				w.Do(Job{Name: "range", On: s, Uses: []core.Use{m.RW()}, Kernel: testkernels.Write, Args: []any{m.At(0), 10, uint64(3)}})
				w.Do(Job{Name: "empty_range", On: s, Uses: []core.Use{m.RW()}, Kernel: testkernels.CopyAdd, Args: []any{m.At(m.Words()), m.At(0), 0, uint64(0)}})
			}
			w.Free(a, b)
		}),
		clean("number-like-an-address", "passes a kernel a number that happens to be an address of another block", func(w *World) {
			s := w.Stream()
			a, b := w.Filled(s, "first", words, 1), w.Filled(s, "second", words, 2)
			w.must(w.kernels[testkernels.Write].Launch(w.ctx, w.Runtime, s.Lease, cuda.Blocks1D(words, 256), []core.Use{a.W()},
				driver.Ptr(a.ID.Ptr), driver.U64(words), driver.U64(b.ID.Ptr)))
			w.Free(b)
			w.Read("use_numbers", s, a)
			w.Free(a)
		}),
		{Name: "larger-than-quarantine", Class: Clean, What: "writes a block that quarantine has no room for, in full, and frees it",
			Configure: func(c *fencepost.Config) { c.GuardConfig.QuarantineBytes = 1 << 20 },
			Run: func(w *World, _ bool) {
				s := w.Stream()
				b := w.Filled(s, "huge", 1<<19, 1)
				w.Free(b)
				b = w.Filled(s, "huge", 1<<19, 2)
				w.Free(b)
			}},
		clean("many-tiny-blocks", "writes hundreds of blocks of a few bytes that lie side by side", func(w *World) {
			s := w.Stream()
			var all []*Mem
			for i := range 300 {
				b := w.Bytes(s, core.Tag(fmt.Sprintf("tiny.%d", i%4)), uint64(1+i%16))
				w.memset(s, b, 0, byte(i), b.Requested)
				all = append(all, b)
			}
			w.Free(all...)
		}),
	}
}
