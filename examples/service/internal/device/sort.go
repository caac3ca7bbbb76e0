package device

import (
	"context"
	"fmt"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
)

// MaxRows is the most rows of a column: the kernels count in 32 bits, and a
// column must have room in them for both its bytes and its counters.
const MaxRows = 1 << 28

func checkRows(op string, lengths ...int) error {
	for _, n := range lengths {
		if n > MaxRows {
			return &core.InvalidRequestError{Op: op, Field: "rows", Reason: fmt.Sprintf("%d rows: at most %d", n, MaxRows)}
		}
	}
	return nil
}

// keyBits is the size of the keys that the kernels sort by.
const keyBits = 32

// SortBytes is the device memory that a sort of n keys of width bytes takes.
func SortBytes(n, width int) uint64 { return sortWords(n, width/wordBytes) * wordBytes }

// sortWords counts the columns: the keys' words twice, to move to and fro, and
// the counters.
func sortWords(n, words int) uint64 {
	return 2*uint64(words)*uint64(n) + uint64(kernels.Counters(n))
}

// Sort32 returns the keys in order. It waits for memory, streams and the
// device until ctx ends. Errors: [core.OutOfBudgetError] if the memory is not
// to be had, [cuda.ErrNoStream], ctx's, and those of the driver.
func (e *Engine) Sort32(ctx context.Context, keys []uint32) ([]uint32, error) {
	if len(keys) == 0 {
		return []uint32{}, nil
	}
	sorted, err := e.sort(ctx, keys)
	if err != nil {
		return nil, err
	}
	return sorted[0], nil
}

// Sort64 returns the keys in order: sorted by their lower halves, and then,
// since the sort keeps the order of equals, by their upper halves. It waits and
// fails like Sort32.
func (e *Engine) Sort64(ctx context.Context, keys []uint64) ([]uint64, error) {
	if len(keys) == 0 {
		return []uint64{}, nil
	}
	low, high := make([]uint32, len(keys)), make([]uint32, len(keys))
	for i, k := range keys {
		low[i], high[i] = uint32(k), uint32(k>>keyBits)
	}
	halves, err := e.sort(ctx, low, high)
	if err != nil {
		return nil, err
	}
	sorted := make([]uint64, len(keys))
	for i := range sorted {
		sorted[i] = uint64(halves[1][i])<<keyBits | uint64(halves[0][i])
	}
	return sorted, nil
}

// sort sorts rows of one or two words, the least significant first, and
// returns the words' columns.
func (e *Engine) sort(ctx context.Context, words ...[]uint32) (sorted [][]uint32, err error) {
	n := len(words[0])
	if err := checkRows("Sort", n); err != nil {
		return nil, err
	}
	err = e.do(ctx, sortJob, sortWords(n, len(words)), func(j *fencepost.Job) error {
		rows, err := newRows(j, words)
		if err != nil {
			return err
		}
		for word := range words {
			for shift := 0; shift < keyBits; shift += kernels.DigitBits {
				if err := e.pass(j, rows, word, uint32(shift)); err != nil {
					return err
				}
			}
		}
		if e.plant.due(n) {
			if err := e.overrun(j, rows.there[0]); err != nil {
				return err
			}
		}
		for _, col := range rows.here {
			values, err := fencepost.Download(j, col)
			if err != nil {
				return err
			}
			sorted = append(sorted, values)
		}
		return nil
	})
	return sorted, err
}

// rows are the columns of a sort under way, and where the next pass moves them.
type rows struct {
	n           int
	here, there []*column
	counters    *column
}

func newRows(j *fencepost.Job, words [][]uint32) (*rows, error) {
	r := &rows{n: len(words[0])}
	for _, values := range words {
		col, err := fencepost.Upload(j, values)
		if err != nil {
			return nil, err
		}
		r.here = append(r.here, col)
	}
	lengths := []int{kernels.Counters(r.n)}
	for range words {
		lengths = append(lengths, r.n)
	}
	cols, err := allocate(j, lengths...)
	if err != nil {
		return nil, err
	}
	r.counters, r.there = cols[0], cols[1:]
	return r, nil
}

// pass sorts the rows by one digit of one of their words. The other word is
// carried along; rows of one word carry the word itself.
func (e *Engine) pass(j *fencepost.Job, r *rows, word int, shift uint32) error {
	k := e.kernels
	other := len(r.here) - 1 - word
	keys, values, toKeys, toValues := r.here[word], r.here[other], r.there[word], r.there[other]
	n, digit := fencepost.Value(uint32(r.n)), fencepost.Value(shift)
	err := j.Launch(k.Histogram, kernels.Sliced(r.n), fencepost.Reads(keys), fencepost.Writes(r.counters), n, digit)
	if err == nil {
		err = j.Launch(k.Scan, kernels.OneBlock(), fencepost.ReadWrites(r.counters), fencepost.Value(uint32(r.counters.Len())))
	}
	if err == nil {
		err = j.Launch(k.Scatter, kernels.Sliced(r.n), fencepost.Reads(keys), fencepost.Reads(values),
			fencepost.Writes(toKeys), fencepost.Writes(toValues), fencepost.Reads(r.counters), n, digit)
	}
	r.here, r.there = r.there, r.here
	return err
}
