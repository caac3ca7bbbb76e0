package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/workload"
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
	return 2*uint64(words)*uint64(n) + uint64(workload.Counters(n))
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
	j, err := e.begin(ctx, sortTag, sortWords(n, len(words)), 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.end(ctx)) }()
	on := j.streams[0]
	rows, err := j.newRows(ctx, on, words)
	if err != nil {
		return nil, err
	}
	for word := range words {
		for shift := 0; shift < keyBits; shift += workload.DigitBits {
			if err := j.pass(ctx, on, rows, word, uint32(shift)); err != nil {
				return nil, err
			}
		}
	}
	sorted = make([][]uint32, len(words))
	for i, col := range rows.here {
		sorted[i] = make([]uint32, n)
		if err := cuda.CopyToHost(ctx, sorted[i], col, on.ID()); err != nil {
			return nil, err
		}
	}
	return sorted, j.wait(ctx, on)
}

// rows are the columns of a sort under way, and where the next pass moves them.
type rows struct {
	n           int
	here, there []*column
	counters    *column
}

func (j *job) newRows(ctx context.Context, on *cuda.Lease, words [][]uint32) (*rows, error) {
	r := &rows{n: len(words[0])}
	for _, values := range words {
		col, err := j.upload(ctx, on, values)
		if err != nil {
			return nil, err
		}
		r.here = append(r.here, col)
	}
	lengths := []int{workload.Counters(r.n)}
	for range words {
		lengths = append(lengths, r.n)
	}
	cols, err := j.allocAll(ctx, on, lengths...)
	if err != nil {
		return nil, err
	}
	r.counters, r.there = cols[0], cols[1:]
	return r, nil
}

// pass sorts the rows by one digit of one of their words. The other word is
// carried along; rows of one word carry the word itself.
func (j *job) pass(ctx context.Context, on *cuda.Lease, r *rows, word int, shift uint32) error {
	k := j.engine.kernels
	other := len(r.here) - 1 - word
	keys, values, toKeys, toValues := r.here[word], r.here[other], r.there[word], r.there[other]
	n := driver.U32(uint32(r.n))
	counters := []*column{r.counters}
	err := j.launch(ctx, on, k.Histogram, workload.Sliced(r.n), []*column{keys}, counters, keys.Arg(), r.counters.Arg(), n, driver.U32(shift))
	if err == nil {
		err = j.launch(ctx, on, k.Scan, workload.OneBlock(), counters, counters, r.counters.Arg(), driver.U32(uint32(r.counters.Len())))
	}
	if err == nil {
		err = j.launch(ctx, on, k.Scatter, workload.Sliced(r.n), []*column{keys, values, r.counters}, []*column{toKeys, toValues},
			keys.Arg(), values.Arg(), toKeys.Arg(), toValues.Arg(), r.counters.Arg(), n, driver.U32(shift))
	}
	r.here, r.there = r.there, r.here
	return err
}
