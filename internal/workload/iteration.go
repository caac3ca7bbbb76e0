package workload

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

const (
	digitBits = 8
	digits    = 1 << digitBits
	passes    = 32 / digitBits
	slotWords = 2
	// below is what the filter asks of a partner's value: about half pass.
	below = 1 << 31
)

type column = cuda.Slice[uint32]

// iteration is one sort and join under way on two streams.
type iteration struct {
	w       *Workload
	streams [2]*cuda.Lease
	owned   []*column
	// writers is which stream wrote each block last, kept here and not asked
	// of the runtime, so that the share of cross-stream launches is counted
	// independently of what is being shown.
	writers map[core.Generation]core.StreamID
	uses    []core.Use
}

// results are the columns that are compared to the CPU's.
type results struct {
	keys, values, joined *column
	// kept holds the filter's survivors at the beginning of each slice,
	// survivors their numbers.
	kept, survivors *column
}

func (it *iteration) run(ctx context.Context, t tables) error {
	var r results
	if err := it.compute(ctx, t, &r); err != nil {
		return err
	}
	return it.check(ctx, t, &r)
}

// compute enqueues everything but the way back.
func (it *iteration) compute(ctx context.Context, t tables, r *results) error {
	for _, step := range []func(context.Context, tables, *results) error{it.sort, it.join, it.filter} {
		if err := step(ctx, t, r); err != nil {
			return err
		}
	}
	return nil
}

// sort uploads the left table and radix-sorts it. Each pass's histogram and
// scatter run on one stream and its scan on the other, and the roles change
// from pass to pass, so every launch reads what the other stream wrote.
func (it *iteration) sort(ctx context.Context, t tables, r *results) error {
	n := len(t.leftKeys)
	counters := digits * slicesOf(n)
	cols, err := it.alloc(ctx, 0, "sort", n, n, n, n, counters)
	if err != nil {
		return err
	}
	keys, values, otherKeys, otherValues, counts := cols[0], cols[1], cols[2], cols[3], cols[4]
	if err := errors.Join(it.upload(ctx, 1, keys, t.leftKeys), it.upload(ctx, 1, values, t.leftValues)); err != nil {
		return err
	}
	for pass := range passes {
		here, there := pass%2, 1-pass%2
		shift := driver.U32(uint32(pass * digitBits))
		k := &it.w.kernels
		err := it.launch(ctx, here, k.histogram, sliced(n), it.reads(keys), it.writes(counts), keys.Arg(), counts.Arg(), driver.U32(uint32(n)), shift)
		if err == nil {
			err = it.launch(ctx, there, k.scan, oneBlock, nil, it.readWrites(counts), counts.Arg(), driver.U32(uint32(counters)))
		}
		if err == nil {
			err = it.launch(ctx, here, k.scatter, sliced(n), it.reads(keys, values, counts), it.writes(otherKeys, otherValues),
				keys.Arg(), values.Arg(), otherKeys.Arg(), otherValues.Arg(), counts.Arg(), driver.U32(uint32(n)), shift)
		}
		if err != nil {
			return err
		}
		keys, values, otherKeys, otherValues = otherKeys, otherValues, keys, values
	}
	r.keys, r.values = keys, values
	return nil
}

// join builds a hash table of the right side and probes it with the sorted
// keys.
func (it *iteration) join(ctx context.Context, t tables, r *results) error {
	n, m := len(t.leftKeys), len(t.rightKeys)
	slots := 1
	for slots < 2*m {
		slots *= 2
	}
	cols, err := it.alloc(ctx, 1, "join", m, m, slots*slotWords, n)
	if err != nil {
		return err
	}
	rightKeys, rightValues, table, joined := cols[0], cols[1], cols[2], cols[3]
	k := &it.w.kernels
	mask := driver.U32(uint32(slots - 1))
	err = errors.Join(it.upload(ctx, 0, rightKeys, t.rightKeys), it.upload(ctx, 0, rightValues, t.rightValues))
	if err == nil {
		err = it.launch(ctx, 0, k.clear, rows(slots*slotWords), nil, it.writes(table), table.Arg(), driver.U32(uint32(slots*slotWords)))
	}
	if err == nil {
		err = it.launch(ctx, 1, k.build, rows(m), it.reads(rightKeys, rightValues), it.readWrites(table),
			rightKeys.Arg(), rightValues.Arg(), table.Arg(), driver.U32(uint32(m)), mask)
	}
	if err == nil {
		err = it.launch(ctx, 0, k.probe, rows(n), it.reads(r.keys, table), it.writes(joined),
			r.keys.Arg(), table.Arg(), joined.Arg(), driver.U32(uint32(n)), mask)
	}
	r.joined = joined
	return err
}

// filter keeps the left values of the rows whose partner's value is small.
func (it *iteration) filter(ctx context.Context, t tables, r *results) error {
	n := len(t.leftKeys)
	cols, err := it.alloc(ctx, 0, "filter", n, slicesOf(n))
	if err != nil {
		return err
	}
	r.kept, r.survivors = cols[0], cols[1]
	return it.launch(ctx, 1, it.w.kernels.filter, sliced(n), it.reads(r.values, r.joined), it.writes(r.kept, r.survivors),
		r.values.Arg(), r.joined.Arg(), r.kept.Arg(), r.survivors.Arg(), driver.U32(uint32(n)), driver.U32(below))
}
