package device

import (
	"context"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
)

// keyBits is the size of the keys that the kernels sort by.
const keyBits = 32

// SortBytes is the device memory that a sort of n keys takes: the keys twice, to
// move to and fro, and the counters.
func SortBytes(n int) uint64 { return wordBytes * (2*uint64(n) + uint64(kernels.Counters(n))) }

// Sort returns the keys in order. It waits for memory, streams and the device
// until ctx ends. Errors: [core.OutOfBudgetError] if the memory is not to be had,
// [cuda.ErrNoStream], ctx's, and those of the driver.
func (e *Engine) Sort(ctx context.Context, keys []uint32) (sorted []uint32, err error) {
	n := len(keys)
	if err := checkRows("Sort", n); err != nil || n == 0 {
		return []uint32{}, err
	}
	err = e.do(ctx, "service.sort", SortBytes(n), func(j *fencepost.Job) error {
		here, err := fencepost.Upload(j, keys)
		if err != nil {
			return err
		}
		counters, err := fencepost.Alloc[uint32](j, kernels.Counters(n))
		if err != nil {
			return err
		}
		there, err := fencepost.Alloc[uint32](j, n)
		if err != nil {
			return err
		}
		for shift := uint32(0); shift < keyBits; shift += kernels.DigitBits {
			if err := e.pass(j, here, there, counters, shift); err != nil {
				return err
			}
			here, there = there, here
		}
		if e.planted(n) {
			if err := e.overrun(j, there); err != nil {
				return err
			}
		}
		sorted, err = fencepost.Download(j, here)
		return err
	})
	return sorted, err
}

// pass moves the keys in the order of one of their digits. The kernel carries a
// value along with each key; here that is the key itself.
func (e *Engine) pass(j *fencepost.Job, from, to, counters *column, shift uint32) error {
	k, rows := e.kernels, from.Len()
	n, digit := fencepost.Value(uint32(rows)), fencepost.Value(shift)
	err := j.Launch(k.Histogram, kernels.Sliced(rows), fencepost.Reads(from), fencepost.Writes(counters), n, digit)
	if err == nil {
		err = j.Launch(k.Scan, kernels.OneBlock(), fencepost.ReadWrites(counters), fencepost.Value(uint32(counters.Len())))
	}
	if err == nil {
		err = j.Launch(k.Scatter, kernels.Sliced(rows), fencepost.Reads(from), fencepost.Reads(from),
			fencepost.Writes(to), fencepost.Writes(to), fencepost.Reads(counters), n, digit)
	}
	return err
}

// roundedTo is what the runtime rounds blocks up to, in words.
const roundedTo = 64

// planted reports whether this sort of n rows has the bug that is planted on
// request: it wipes its scratch column before it gives it back, and counts one value
// too many. A sort whose scratch column has nothing between it and its neighbour
// never has it: only a guard is to see the bug, and no result may change.
func (e *Engine) planted(n int) bool {
	every := e.cfg.PlantOverrun
	return every > 0 && n%roundedTo != 0 && e.sorts.Add(1)%every == 0
}

// overrun is the planted bug.
func (e *Engine) overrun(j *fencepost.Job, scratch *column) error {
	tooMany := scratch.Len() + 1
	return j.Launch(e.kernels.Clear, kernels.Rows(tooMany), fencepost.Writes(scratch), fencepost.Value(uint32(tooMany)))
}
