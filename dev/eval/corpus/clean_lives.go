package corpus

import (
	"math/rand/v2"
	"slices"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// freedInOrder writes blocks and frees them in an order.
func freedInOrder(w *World, order func([]*Mem)) {
	s := w.Stream()
	all := make([]*Mem, 0, 20)
	for i := range 20 {
		all = append(all, w.Filled(s, "layer", 50+i, uint64(i)))
	}
	order(all)
	for _, m := range all {
		w.Read("use_layer", s, m)
		w.Free(m)
	}
}

// cleanLives end blocks in unusual and legal ways.
func cleanLives() []Case {
	return []Case{
		clean("freed-first-in-first-out", "frees blocks in the order of their allocation, each right after its last reader", func(w *World) { freedInOrder(w, func([]*Mem) {}) }),
		clean("freed-last-in-first-out", "frees blocks in the opposite order", func(w *World) { freedInOrder(w, slices.Reverse[[]*Mem]) }),
		clean("freed-in-any-order", "frees blocks in a shuffled order", func(w *World) {
			freedInOrder(w, func(all []*Mem) {
				rand.New(rand.NewPCG(1, 2)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			})
		}),
		clean("address-comes-again", "a block is freed and the next one has its address, is written and read", func(w *World) {
			s := w.Stream()
			b := w.Enclosed(s, "old", words, 1)
			next := w.Reuse(s, b, "new")
			w.Write("fill_new", s, next, 2)
			w.Read("use_new", s, next)
			w.Free(next)
		}),
		clean("read-write-of-fresh-memory", "a launch declares that it reads and writes a fresh block, which it initialises itself", func(w *World) {
			s := w.Stream()
			b := w.Words(s, "accumulator", words)
			w.Do(Job{Name: "initialise", On: s, Uses: []core.Use{b.RW()}, Kernel: testkernels.Write, Args: []any{b.At(0), words, uint64(0)}})
			w.Read("use_sum", s, b)
			w.Free(b)
		}),
		clean("freed-while-a-launch-is-open", "a block is freed between the two halves of a launch that writes it", func(w *World) {
			s := w.Stream()
			b := w.Filled(s, "rows", words, 1)
			t, err := w.Core().PrepareUse(w.ctx, core.UseRequest{Stream: s.ID(), Launch: "update_rows", Uses: []core.Use{b.W()}, Pointers: []uint64{b.ID.Ptr}})
			w.must(err)
			w.Free(b)
			w.Raw(Job{On: s, Enqueue: w.Memset(b.At(0), 5, b.Requested)})
			w.must(w.Core().FinishUse(w.ctx, t))
		}),
		clean("freed-by-inner-pointer", "a handle whose pointer was advanced within the block frees it", func(w *World) {
			s := w.Stream()
			b := w.Filled(s, "rows", words, 1)
			b.ID.Ptr += 64
			w.Free(b)
		}),
		clean("host-buffer-freed-at-once", "a page-locked buffer is freed right after the copy from it was queued", func(w *World) {
			s := w.Stream()
			v := w.Slice(s, "uploaded", 100)
			buffer, err := cuda.AllocHost[uint64](w.Memory(), 100)
			w.must(err)
			for i := range buffer.Values() {
				buffer.Values()[i] = uint64(i)
			}
			w.must(cuda.CopyToDevice(w.ctx, v, s.ID(), buffer.Values()))
			w.must(buffer.Free(w.ctx))
			if got := w.Download(s, v); got[99] != 99 {
				w.failf("the last of the values is %d", got[99])
			}
			w.must(v.Free(w.ctx))
		}),
		clean("claim-drawn-and-returned", "blocks are drawn from a reservation that is given back while one of them lives", func(w *World) {
			s := w.Stream()
			claim, err := w.Reserve(w.ctx, 1<<20, "batch")
			w.must(err)
			b, err := w.Allocate(w.ctx, core.Request{Bytes: words * wordBytes, Stream: s.ID(), Tag: "batch", Claim: claim.ID})
			w.must(err)
			w.must(w.ReleaseClaim(w.ctx, claim.ID))
			m := &Mem{b}
			w.Write("fill_batch", s, m, 1)
			w.Free(m)
		}),
		{Name: "refused-and-relieved", Class: Clean, What: "allocations come close to the budget, so that what quarantine holds must be given up for the next one",
			Configure: func(c *fencepost.Config) { c.Budget = 4 << 20 },
			Run: func(w *World, _ bool) {
				s := w.Stream()
				for i := range 12 {
					b := w.Bytes(s, "large", 1<<20)
					w.memset(s, b, 0, byte(i), 1<<20)
					w.Free(b)
				}
			}},
		clean("written-by-a-copy", "a block is first written by a copy and not by a kernel, then read", func(w *World) {
			s := w.Stream()
			b := w.Words(s, "table", words)
			data := make([]byte, words*wordBytes)
			w.Do(Job{Name: "upload", On: s, Uses: []core.Use{b.W()}, Enqueue: func(h driver.Stream) error { return w.Driver().CopyToDeviceAsync(b.ID.Ptr, data, h) }})
			w.Read("use_table", s, b)
			w.Sync(s)
			w.Free(b)
		}),
	}
}
