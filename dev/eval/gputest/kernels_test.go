package gputest

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// words is device memory that all of the kernels work on.
type words = cuda.Slice[uint64]

func (b *bench) alloc(on *cuda.Lease, n int, tag core.Tag) *words {
	b.Helper()
	w, err := b.tryAlloc(on, n, tag)
	must(b, err)
	return w
}

func (b *bench) tryAlloc(on *cuda.Lease, n int, tag core.Tag) (*words, error) {
	return cuda.Alloc[uint64](ctx, b.Memory(), n, cuda.AllocOptions{Stream: on.ID(), Tag: tag})
}

// counter is a word for the words that a check finds wrong.
func (b *bench) counter(on *cuda.Lease) (*words, error) {
	sum, err := b.tryAlloc(on, 1, "mismatches")
	if err != nil {
		return nil, err
	}
	return sum, cuda.Memset(ctx, sum, on.ID(), 0)
}

// mismatches is what a counter has counted. A counter that no kernel adds to
// would be silent too, so three more mismatches are made on purpose.
func (b *bench) mismatches(on *cuda.Lease, sum *words) (uint64, error) {
	const made = 3
	before, err := cuda.Download(ctx, sum, on.ID())
	if err != nil {
		return 0, err
	}
	w, err := b.tryAlloc(on, made, "mismatches")
	if err != nil {
		return 0, err
	}
	err = errors.Join(b.doWrite(on, w, 1), b.doCheck(on, w, 2, sum), w.Free(ctx))
	after, readErr := cuda.Download(ctx, sum, on.ID())
	if err := errors.Join(err, readErr, sum.Free(ctx)); err != nil {
		return 0, err
	}
	if counted := after[0] - before[0]; counted != made {
		return 0, fmt.Errorf("the counter counted %d of %d mismatches", counted, made)
	}
	return before[0], nil
}

// right demands that a counter has counted nothing, and gives it back.
func (b *bench) right(on *cuda.Lease, sum *words) {
	b.Helper()
	n, err := b.mismatches(on, sum)
	must(b, err)
	if n != 0 {
		b.Errorf("%d words are wrong", n)
	}
}

func (b *bench) doWrite(on *cuda.Lease, to *words, value uint64) error {
	return b.write.Launch(ctx, b.Runtime, on, grid(to.Len()), []core.Use{to.Use(core.Write)}, to.Arg(), driver.U64(uint64(to.Len())), driver.U64(value))
}

// doCheck adds the number of words that are not value to sum.
func (b *bench) doCheck(on *cuda.Lease, of *words, value uint64, sum *words) error {
	return b.check.Launch(ctx, b.Runtime, on, grid(of.Len()), []core.Use{of.Use(core.Read), sum.Use(core.ReadWrite)},
		of.Arg(), driver.U64(uint64(of.Len())), driver.U64(value), sum.Arg())
}

// doCopy copies what fits of from, with add added to each word.
func (b *bench) doCopy(on *cuda.Lease, to, from *words, add uint64) error {
	n := min(to.Len(), from.Len())
	return b.copyAdd.Launch(ctx, b.Runtime, on, grid(n), []core.Use{to.Use(core.Write), from.Use(core.Read)},
		to.Arg(), from.Arg(), driver.U64(uint64(n)), driver.U64(add))
}

// grid has a thread for each of some words, which then go on to others.
func grid(n int) cuda.Grid { return cuda.Blocks1D(min(n, 1<<16), 256) }

// read returns the words when everything before has been done.
func (b *bench) read(on *cuda.Lease, from *words) []uint64 {
	b.Helper()
	values, err := cuda.Download(ctx, from, on.ID())
	must(b, err)
	return values
}

// increment adds one to every word, raw: the caller has fenced it.
func (b *bench) increment(on *cuda.Lease, w *words) error {
	return b.copyAdd.Enqueue(on.Handle(), grid(w.Len()), w.Arg(), w.Arg(), driver.U64(uint64(w.Len())), driver.U64(1))
}
